//! The committer: one task with one connection, which sends the commits that wait together.
//!
//! Group commit, because a durable commit costs a disk flush however much it contains, and a round trip however
//! many statements are sent: all statements of a transaction are sent at once. Dropping the caller's future never
//! interrupts a commit.
//!
//! Invariants
//! - A commit is answered `Ok` only after the answer to `COMMIT`, and only if every statement before it succeeded.
//! - A batch is bounded by number and by size: what one commit waits for is sent well within [`ANSWER`].
//! - If a batch fails because of its data, its commits are run again one by one: one bad commit fails nobody else.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_sbp::id::SessionId;
use bowline_sbp::session::{Commit, CommitError};
use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

use super::backoff::Backoff;
use super::connect::PostgresConfig;
use super::error::{Attempt, Fault};
use super::fold::Rows;
use super::pool::{Pool, commit_fault};
use super::rows::column;
use super::{batch, commit, statements};

/// The most commits in one transaction: bounds how long the first one waits for the rest.
const BATCH: usize = 256;
/// The most bytes of text in one transaction, unless a single commit has more.
const BATCH_BYTES: usize = 8 << 20;
/// The most commits that wait; further callers wait for a free slot.
const QUEUE: usize = 1024;
/// How long the database may take to answer a batch. After that its connection is given up.
const ANSWER: Duration = Duration::from_secs(20);
/// How often a batch is sent again after a conflict.
const MOST_TRIES: u32 = 8;

/// Every statement of a commit finds its rows by key. PostgreSQL, which does not know how many rows a parameter
/// holds, plans each anew or keeps a plan of when the tables were small, and then reads them whole.
const PLANS: &str = "
    SET plan_cache_mode TO force_generic_plan;
    SET enable_seqscan TO off; SET enable_hashjoin TO off; SET enable_mergejoin TO off";

type Answer = Result<(), CommitError>;

/// A commit, and where its result is awaited.
#[derive(Debug)]
struct Waiting {
    commit: Arc<Commit>,
    answer: oneshot::Sender<Answer>,
}

#[derive(Debug)]
pub(super) struct Committer {
    pool: Pool,
    writer: Uuid,
    /// None once the store is closed.
    queue: Mutex<Option<mpsc::Sender<Waiting>>>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Committer {
    pub(super) fn start(config: PostgresConfig, pool: Pool, writer: Uuid) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let task = tokio::spawn(Link::new(config, writer).run(waiting));
        let task = tokio::sync::Mutex::new(Some(task));
        Self { pool, writer, queue: Mutex::new(Some(queue)), task }
    }

    pub(super) async fn commit(&self, commit: Arc<Commit>) -> Answer {
        let closed = || CommitError::NotStored("the store is closed".into());
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let queue = queue.ok_or_else(closed)?;
        if commit::is_rare(&commit) {
            let (pool, writer) = (self.pool.clone(), self.writer);
            let task = tokio::spawn(async move { commit_alone(&pool, &commit, writer).await });
            return task.await.unwrap_or_else(|_| Err(lost_answer()));
        }
        let (answer, answered) = oneshot::channel();
        queue.send(Waiting { commit, answer }).await.map_err(|_| closed())?;
        drop(queue);
        answered.await.unwrap_or_else(|_| Err(lost_answer()))
    }

    /// Commits what waits, and takes nothing more.
    pub(super) async fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(task) = self.task.lock().await.take() {
            let _ = task.await;
        }
    }
}

fn lost_answer() -> CommitError {
    CommitError::Unknown("the task of the commit ended".into())
}

async fn commit_alone(pool: &Pool, commit: &Arc<Commit>, writer: Uuid) -> Answer {
    match pool.transaction(move |c| async move { commit::alone(&c, commit, writer).await }).await {
        Ok(true) => {
            crate::failpoint::committed();
            Ok(())
        }
        Ok(false) => Err(CommitError::Fenced),
        Err(fault) => Err(commit::refusal(fault, commit)),
    }
}

/// The connection of the committer.
struct Link {
    config: PostgresConfig,
    writer: Uuid,
    connected: Option<(Client, HashMap<&'static str, Statement>)>,
    backoff: Backoff,
}

impl Link {
    fn new(config: PostgresConfig, writer: Uuid) -> Self {
        Self { config, writer, connected: None, backoff: Backoff::default() }
    }

    async fn run(mut self, mut waiting: mpsc::Receiver<Waiting>) {
        // A later commit of a session waits for its earlier one.
        let mut later = VecDeque::new();
        loop {
            if later.is_empty() {
                let Some(first) = waiting.recv().await else { return };
                later.push_back(first);
            }
            while later.len() < QUEUE
                && let Ok(next) = waiting.try_recv()
            {
                later.push_back(next);
            }
            let batch =
                gather(&mut later, |waiting| (waiting.commit.session, waiting.commit.bytes()));
            self.answer(batch).await;
        }
    }

    /// Runs a batch, and answers its commits.
    async fn answer(&mut self, batch: Vec<Waiting>) {
        // One by one: only the bad one is refused.
        for waiting in self.answer_together(batch).await {
            self.answer_together(vec![waiting]).await;
        }
    }

    /// Runs a batch in one transaction, and answers its commits. Returns them if one of several makes the
    /// transaction fail.
    async fn answer_together(&mut self, mut batch: Vec<Waiting>) -> Vec<Waiting> {
        // Processes that meet at the same sessions lock them in the same order.
        batch.sort_by_key(|waiting| *waiting.commit.session.as_bytes());
        let commits: Vec<_> = batch.iter().map(|waiting| Arc::clone(&waiting.commit)).collect();
        match self.try_often(&commits).await {
            Ok(applied) => {
                for waiting in batch {
                    let is_applied = applied.contains(&waiting.commit.session);
                    let answer = if is_applied { Ok(()) } else { Err(CommitError::Fenced) };
                    // The caller may have gone; the commit stays.
                    let _ = waiting.answer.send(answer);
                }
            }
            Err(fault) if is_of_the_data(&fault) => {
                if batch.len() > 1 {
                    return batch;
                }
                if let Some(waiting) = batch.pop() {
                    let refusal = commit::refusal(fault, &waiting.commit);
                    let _ = waiting.answer.send(Err(refusal));
                }
            }
            Err(fault) => {
                let error = match fault {
                    Fault::Unknown(reason) => CommitError::Unknown(reason),
                    fault => CommitError::NotStored(crate::Error::from(fault).to_string()),
                };
                for waiting in batch {
                    let _ = waiting.answer.send(Err(error.clone()));
                }
            }
        }
        Vec::new()
    }

    async fn try_often(&mut self, commits: &[Arc<Commit>]) -> Attempt<HashSet<SessionId>> {
        let mut tries = 1;
        loop {
            let outcome = match tokio::time::timeout(ANSWER, self.transact(commits)).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    self.connected = None;
                    Err(Fault::Unknown("the database did not answer in time".into()))
                }
            };
            match outcome {
                Err(fault) if fault.is_passing() && tries < MOST_TRIES => {
                    tokio::time::sleep(Duration::from_millis(1 << tries)).await;
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Sends one transaction; returns the sessions whose commits are applied.
    async fn transact(&mut self, commits: &[Arc<Commit>]) -> Attempt<HashSet<SessionId>> {
        let mut rows = Rows::default();
        commits.iter().try_for_each(|commit| rows.add(commit))?;
        let steps = batch::steps(commits, &rows, self.writer, true)?;
        let (client, mut known) = self.connection().await?;
        for step in &steps {
            if !known.contains_key(step.sql) {
                known.insert(step.sql, client.prepare(step.sql).await?);
            }
        }
        let outcome = send(&client, &known, &steps).await;
        // After a lost connection the next batch makes a new one.
        if !client.is_closed() {
            self.connected = Some((client, known));
        }
        let found = outcome?;
        let mut applied = HashSet::new();
        for row in &found {
            if column(row, "applied")? {
                applied.insert(SessionId::from_bytes(column::<Uuid>(row, "session")?.into_bytes()));
            }
        }
        Ok(applied)
    }

    /// The connection. It is given back after an answer alone.
    async fn connection(&mut self) -> Attempt<(Client, HashMap<&'static str, Statement>)> {
        if let Some(connected) = self.connected.take().filter(|(client, _)| !client.is_closed()) {
            return Ok(connected);
        }
        self.backoff.wait().await;
        let connected = async {
            let (client, _) = self.config.connect().await?;
            client.batch_execute(PLANS).await?;
            Ok::<_, tokio_postgres::Error>(client)
        };
        match connected.await {
            Ok(client) => {
                self.backoff.succeeded();
                Ok((client, HashMap::new()))
            }
            Err(error) => {
                self.backoff.failed();
                Err(error.into())
            }
        }
    }
}

/// The first commit of each session, in their order, as many as one transaction takes; the others stay. `of`: the
/// session of a commit, and its bytes.
fn gather<T>(later: &mut VecDeque<T>, of: impl Fn(&T) -> (SessionId, usize)) -> Vec<T> {
    let (mut batch, mut rest, mut sessions) = (Vec::new(), VecDeque::new(), HashSet::new());
    let mut total = 0;
    while let Some(waiting) = later.pop_front() {
        let (session, bytes) = of(&waiting);
        let fits = batch.len() < BATCH && total + bytes <= BATCH_BYTES;
        // Inserted in any case: also those behind it of the same session stay.
        match sessions.insert(session) && (fits || batch.is_empty()) {
            true => {
                total += bytes;
                batch.push(waiting);
            }
            false => rest.push_back(waiting),
        }
    }
    *later = rest;
    batch
}

/// Sends a whole transaction at once; returns the rows of its last statement.
async fn send(
    client: &Client,
    known: &HashMap<&'static str, Statement>,
    steps: &[batch::Step<'_>],
) -> Attempt<Vec<Row>> {
    let params: Vec<_> = steps.iter().map(batch::Step::params).collect();
    let queries = steps.iter().zip(&params).map(|(step, params)| {
        let statement = known.get(step.sql).expect("it was prepared just now");
        client.query(statement, params)
    });
    // Polled in this order, and each is sent when it is polled first.
    let (begun, results, committed) = tokio::join!(
        biased;
        client.batch_execute(statements::BEGIN),
        join_all(queries),
        client.batch_execute("COMMIT"),
    );
    // An answer that a statement failed: PostgreSQL answers `COMMIT` with a rollback. A lost connection in place
    // of an answer: everything was sent, and may have been committed.
    let unanswered = |error: tokio_postgres::Error| match error.as_db_error() {
        Some(_) => Fault::Database(error),
        None => commit_fault(error),
    };
    begun.map_err(unanswered)?;
    let mut last = Vec::new();
    for result in results {
        last = result.map_err(unanswered)?;
    }
    committed.map_err(commit_fault)?;
    Ok(last)
}

/// Whether a batch failed because of what one of its commits contains.
fn is_of_the_data(fault: &Fault) -> bool {
    use super::error::Class;
    match fault {
        Fault::Database(error) => {
            matches!(Class::of(error), Class::Violation(_) | Class::Invalid)
        }
        Fault::Refused(_) => true,
        Fault::Changed | Fault::Unknown(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Commits by the number of their session and their size, as they go into transactions.
    fn batches(commits: &[(u128, usize)]) -> Vec<Vec<(u128, usize)>> {
        let mut later: VecDeque<_> = commits.iter().copied().collect();
        let session = |number: u128| SessionId::from_bytes(number.to_be_bytes());
        let mut batches = Vec::new();
        while !later.is_empty() {
            batches.push(gather(&mut later, |(number, bytes)| (session(*number), *bytes)));
        }
        batches
    }

    #[test]
    fn g11_a_batch_is_closed_by_number_and_by_size() {
        let small: Vec<_> = (0..300).map(|number| (number, 1000)).collect();
        let counts: Vec<_> = batches(&small).iter().map(Vec::len).collect();
        assert_eq!(counts, [256, 44]);
        let large: Vec<_> = (0..20).map(|number| (number, MIB)).collect();
        let counts: Vec<_> = batches(&large).iter().map(Vec::len).collect();
        assert_eq!(counts, [8, 8, 4]);
    }

    #[test]
    fn one_that_is_too_large_goes_alone_and_each_session_keeps_its_order() {
        let all = batches(&[(1, MIB), (2, 9 * MIB), (2, 1), (3, 1), (1, 2), (3, 2)]);
        assert_eq!(all[0], [(1, MIB), (3, 1)]);
        assert_eq!(all[1], [(2, 9 * MIB)]);
        assert_eq!(all[2], [(2, 1), (1, 2), (3, 2)]);
    }
}
