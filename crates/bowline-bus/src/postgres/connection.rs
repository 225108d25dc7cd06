//! One connection to the database of the store, and the table of the bus in it.

use std::time::Duration;

use bowline_store::postgres::PostgresConfig;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Notification};

use crate::BusError;
use crate::send_queue::no_answer;

/// How long the table may take to be made: another process may be making it.
const MAKING: Duration = Duration::from_secs(10);

/// Two processes that make a table at the same time would collide, in spite of IF NOT EXISTS.
const TABLE: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(x'626f7762'::int);
    CREATE UNLOGGED TABLE IF NOT EXISTS bowline_bus (
        id      bigint GENERATED ALWAYS AS IDENTITY,
        replica uuid NOT NULL,
        lane    smallint NOT NULL,
        sender  uuid NOT NULL,
        number  bigint NOT NULL,
        body    bytea NOT NULL,
        at      timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (replica, lane, id)
    );
    CREATE INDEX IF NOT EXISTS bowline_bus_at ON bowline_bus (at);
    COMMIT";

/// What is lost in a crash is lost anyway: no commit here waits for the disk.
const SETTINGS: &str = "SET synchronous_commit TO off";

#[derive(Debug)]
pub(super) struct Database(pub(super) PostgresConfig);

/// An open connection. Closed when it is dropped, even if the server does not read.
pub(super) struct Connection {
    pub(super) client: Client,
    driver: JoinHandle<()>,
}

impl Database {
    pub(super) async fn make_table(&self) -> Result<(), BusError> {
        let made = async {
            let connection = self.connect().await?;
            // The messages may be lost in a crash; the table may not.
            let table = format!("SET synchronous_commit TO on; {TABLE}");
            connection.client.batch_execute(&table).await.map_err(|error| failed(&error))
        };
        timeout(MAKING, made).await.unwrap_or_else(|_| Err(no_answer()))
    }

    pub(super) async fn connect(&self) -> Result<Connection, BusError> {
        let (client, driver) = self.0.connect().await.map_err(|error| failed(&error))?;
        Connection { client, driver }.set_up().await
    }

    pub(super) async fn connect_listening(
        &self,
    ) -> Result<(Connection, mpsc::UnboundedReceiver<Notification>), BusError> {
        let (notified, notifications) = mpsc::unbounded_channel();
        let made = self.0.connect_listening(notified).await;
        let (client, driver) = made.map_err(|error| failed(&error))?;
        Ok((Connection { client, driver }.set_up().await?, notifications))
    }
}

impl Connection {
    async fn set_up(self) -> Result<Self, BusError> {
        self.client.batch_execute(SETTINGS).await.map_err(|error| failed(&error))?;
        Ok(self)
    }

    /// Ends when the connection does.
    pub(super) async fn lost(&mut self) -> BusError {
        let _ = (&mut self.driver).await;
        BusError::Unreachable("it closed the connection".into())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// What went wrong, without what the server says about it, which may quote what was sent.
pub(super) fn failed(error: &tokio_postgres::Error) -> BusError {
    match error.code() {
        Some(code) if *code == SqlState::INVALID_PASSWORD => {
            BusError::Refused("its password or user is wrong".into())
        }
        // It is starting, or stopping.
        Some(code) if code.code().starts_with("57P") => {
            BusError::Unreachable(format!("it answers {}", code.code()))
        }
        Some(code) => BusError::Refused(format!("it answers {}", code.code())),
        None => BusError::Unreachable("the connection broke".into()),
    }
}
