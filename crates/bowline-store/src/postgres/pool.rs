//! Connections, and transactions on them.
//!
//! Invariants
//! - A connection whose transaction did not end goes to nobody else: it is closed, and the server takes the
//!   transaction back.
//! - Every wait for the server ends, also where a proxy or a network swallows its answers and keeps the connection.
//! - No statement of a transaction is sent before its `BEGIN` has succeeded, or would be a transaction of its own;
//!   but for those that write nothing then: reads, and commits of sessions ([`super::statements`]).
//! - A transaction in which a statement failed is never reported as committed, whatever the operation makes of
//!   the failure: PostgreSQL answers its `COMMIT` with a quiet rollback.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    Client, Connect, Manager, ManagerConfig, Object, RecyclingMethod, Runtime, Timeouts,
};
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::backoff::Backoff;
use super::connect::{CONNECT, PostgresConfig};
use super::error::{Attempt, Class, Fault, text_of};
use super::statements;
use crate::{Error, OpenError, Result};

/// How long an operation waits for a free connection.
const WAIT: Duration = Duration::from_secs(5);
/// How often a transaction is run again after a conflict with another one, or a lost connection.
const MOST_TRIES: u32 = 8;

/// After the time that the server may take for a statement, which it ends itself.
const MORE_THAN_A_STATEMENT: Duration = Duration::from_secs(5);
const SILENT: &str = "the database does not answer";

/// How a transaction begins.
#[derive(Debug, Clone, Copy)]
enum Begin {
    /// Statements wait until it has begun.
    First(&'static str),
    /// They are sent together with this one, which saves a round trip: they do no harm if it fails.
    Together(&'static str),
}

type Answered<T> = std::result::Result<T, tokio_postgres::Error>;

/// Values for the parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// What an operation does on a connection. It owns its share of that, and does not borrow it: a future
/// that borrows for any lifetime cannot be shown to be `Send`.
pub(super) trait Answer<T>: Future<Output = Attempt<T>> + Send {}

impl<T, F: Future<Output = Attempt<T>> + Send> Answer<T> for F {}

/// The connections of a store, but for those of commits and of the replica's lease.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    connections: deadpool_postgres::Pool,
    /// How long the server may take for an answer.
    patience: Duration,
}

impl Pool {
    pub(super) fn new(config: PostgresConfig) -> Result<Self, OpenError> {
        let connections = config.connections.max(1);
        let patience = config.statement_timeout + MORE_THAN_A_STATEMENT;
        let connector = Connector { config: config.clone(), backoff: Backoff::default() };
        // The connector has its own configuration, with the TLS of its choice.
        let manager = Manager::from_connect(
            tokio_postgres::Config::new(),
            connector,
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let timeouts =
            Timeouts { wait: Some(WAIT), create: Some(CONNECT + WAIT), recycle: Some(CONNECT) };
        deadpool_postgres::Pool::builder(manager)
            .max_size(connections)
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1)
            .build()
            .map(|connections| Self { connections, patience })
            .map_err(|error| OpenError::Database(error.to_string()))
    }

    /// Runs one statement, or several that need not agree with each other.
    pub(super) async fn read<T, F: Answer<T>>(
        &self,
        operation: impl Fn(Arc<Connection>) -> F,
    ) -> Result<T> {
        self.run(None, operation).await
    }

    /// Runs reads that see one state of the database.
    pub(super) async fn snapshot<T, F: Answer<T>>(
        &self,
        operation: impl Fn(Arc<Connection>) -> F,
    ) -> Result<T> {
        let begin = Begin::Together("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        self.run(Some(begin), operation).await
    }

    /// Runs one transaction. If it conflicts with another one it is run again, so the operation must only
    /// change the database.
    pub(super) async fn write<T, F: Answer<T>>(
        &self,
        operation: impl Fn(Arc<Connection>) -> F,
    ) -> Result<T> {
        self.run(Some(Begin::First("BEGIN")), operation).await
    }

    /// The same for the commit of a session, with the reason why nothing was stored, or why that is unknown.
    pub(super) async fn transaction<T, F: Answer<T>>(
        &self,
        operation: impl Fn(Arc<Connection>) -> F,
    ) -> Attempt<T> {
        self.try_often(Some(Begin::Together(statements::BEGIN)), operation).await
    }

    pub(super) fn close(&self) {
        self.connections.close();
    }

    async fn run<T, F: Answer<T>>(
        &self,
        begin: Option<Begin>,
        operation: impl Fn(Arc<Connection>) -> F,
    ) -> Result<T> {
        self.try_often(begin, operation).await.map_err(Error::from)
    }

    async fn try_often<T, F: Answer<T>>(
        &self,
        begin: Option<Begin>,
        operation: impl Fn(Arc<Connection>) -> F,
    ) -> Attempt<T> {
        let mut tries = 1;
        loop {
            match self.attempt(begin, &operation).await {
                Err(fault) if fault.is_passing() && tries < MOST_TRIES => {
                    // Whoever lost a race loses it again if both run again at once.
                    tokio::time::sleep(Duration::from_millis(spread(tries))).await;
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt<T, F: Answer<T>>(
        &self,
        begin: Option<Begin>,
        operation: &impl Fn(Arc<Connection>) -> F,
    ) -> Attempt<T> {
        let connection = Arc::new(Connection::new(self.connections.get().await?, self.patience));
        let Some(begin) = begin else { return operation(connection).await };
        let done = match begin {
            Begin::First(begin) => {
                connection.begin(begin).await?;
                operation(Arc::clone(&connection)).await
            }
            Begin::Together(begin) => {
                let operation = operation(Arc::clone(&connection));
                // Polled in this order, so both are sent before the first one is answered.
                let (begun, done) = tokio::join!(biased; connection.begin(begin), operation);
                begun?;
                done
            }
        };
        match done {
            Ok(value) => connection.commit().await.map(|()| value),
            Err(fault) => {
                connection.roll_back().await;
                Err(fault)
            }
        }
    }
}

/// Some milliseconds, more after each try, and not the same for everybody.
fn spread(tries: u32) -> u64 {
    let random = uuid::Uuid::new_v4().as_u128() as u64;
    1 + random % (4 << tries)
}

/// One connection, for as long as an operation needs it.
#[derive(Debug)]
pub(super) struct Connection {
    /// None once it was taken away from the pool.
    client: Option<Client>,
    /// Whether a transaction is open.
    open: AtomicBool,
    /// Whether a statement of the open transaction failed.
    failed: AtomicBool,
    /// Whether an answer never came.
    silent: AtomicBool,
    patience: Duration,
}

impl Connection {
    fn new(client: Client, patience: Duration) -> Self {
        let (open, failed, silent) = Default::default();
        Self { client: Some(client), open, failed, silent, patience }
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("it is taken by Drop alone")
    }

    /// The statement, prepared once for each connection.
    pub(super) async fn prepare(&self, sql: &str) -> Attempt<Statement> {
        self.answered(self.client().prepare_cached(sql)).await
    }

    pub(super) async fn query(&self, sql: &str, params: Params<'_>) -> Attempt<Vec<Row>> {
        let statement = self.prepare(sql).await?;
        self.answered(self.client().query(&statement, params)).await
    }

    pub(super) async fn query_one(&self, sql: &str, params: Params<'_>) -> Attempt<Row> {
        let statement = self.prepare(sql).await?;
        self.answered(self.client().query_one(&statement, params)).await
    }

    pub(super) async fn query_opt(&self, sql: &str, params: Params<'_>) -> Attempt<Option<Row>> {
        let statement = self.prepare(sql).await?;
        self.answered(self.client().query_opt(&statement, params)).await
    }

    /// Runs a statement; returns the number of rows that it changed.
    pub(super) async fn execute(&self, sql: &str, params: Params<'_>) -> Attempt<u64> {
        let statement = self.prepare(sql).await?;
        self.answered(self.client().execute(&statement, params)).await
    }

    /// Runs statements without parameters that are not prepared.
    pub(super) async fn batch(&self, sql: &str) -> Attempt<()> {
        self.answered(self.client().batch_execute(sql)).await
    }

    pub(super) async fn begin(&self, begin: &str) -> Attempt<()> {
        self.open.store(true, Ordering::Relaxed);
        self.batch(begin).await
    }

    pub(super) async fn commit(&self) -> Attempt<()> {
        if self.failed.load(Ordering::Relaxed) {
            self.roll_back().await;
            let refused = "a statement of the transaction failed".to_owned();
            return Err(Error::Unavailable(refused).into());
        }
        match self.in_time(self.client().batch_execute("COMMIT")).await {
            Some(Ok(())) => {
                self.open.store(false, Ordering::Relaxed);
                Ok(())
            }
            Some(Err(error)) => Err(commit_fault(error)),
            None => Err(Fault::Unknown(SILENT.into())),
        }
    }

    /// Takes the transaction back. If that fails the connection is closed.
    pub(super) async fn roll_back(&self) {
        if self.silent.load(Ordering::Relaxed) {
            return;
        }
        let rolled_back = self.in_time(self.client().batch_execute("ROLLBACK")).await;
        if rolled_back.is_some_and(|answer| answer.is_ok()) {
            self.open.store(false, Ordering::Relaxed);
            self.failed.store(false, Ordering::Relaxed);
        }
    }

    async fn answered<T>(&self, asked: impl Future<Output = Answered<T>>) -> Attempt<T> {
        let fault = match self.in_time(asked).await {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(error)) => Fault::Database(error),
            None => Error::Unavailable(SILENT.into()).into(),
        };
        self.failed.store(true, Ordering::Relaxed);
        Err(fault)
    }

    /// None: the answer does not come, and this connection is not used again.
    async fn in_time<T>(&self, asked: impl Future<Output = T>) -> Option<T> {
        let answer = tokio::time::timeout(self.patience, asked).await.ok();
        if answer.is_none() {
            self.silent.store(true, Ordering::Relaxed);
        }
        answer
    }
}

/// What an error in answer to `COMMIT` means: a conflict or a violated constraint took the transaction back.
/// After anything else it may have been committed.
pub(super) fn commit_fault(error: tokio_postgres::Error) -> Fault {
    match (error.as_db_error(), Class::of(&error)) {
        (Some(_), Class::Conflict | Class::Violation(_)) => Fault::Database(error),
        _ => Fault::Unknown(text_of(&error)),
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if (self.open.load(Ordering::Relaxed) || self.silent.load(Ordering::Relaxed))
            && let Some(client) = self.client.take()
        {
            drop(Object::take(client));
        }
    }
}

/// Makes the connections of the pool.
struct Connector {
    config: PostgresConfig,
    backoff: Backoff,
}

type Connected =
    std::result::Result<(tokio_postgres::Client, JoinHandle<()>), tokio_postgres::Error>;

impl Connect for Connector {
    fn connect(
        &self,
        _: &tokio_postgres::Config,
    ) -> Pin<Box<dyn Future<Output = Connected> + Send + '_>> {
        Box::pin(async move {
            self.backoff.wait().await;
            let connected = self.config.connect().await;
            match &connected {
                Ok(_) => self.backoff.succeeded(),
                Err(_) => self.backoff.failed(),
            }
            connected
        })
    }
}
