//! The writer thread: all queued operations go into one transaction.
//!
//! Group commit, because a durable commit costs a disk flush however much it contains. All answers
//! wait for the commit. Dropping the caller's future never interrupts an operation.
//!
//! An operation checks before it writes: one that returns a refusal has changed nothing, and the
//! rest of the batch continues. If one fails after its first write (only the database itself can
//! cause that), the whole batch fails. That saves two savepoint statements per operation. What nobody
//! waits for has a savepoint: a write that can never succeed is dropped and fails no batch.
//!
//! An operation that erases is answered after the write-ahead log was folded into the file (see
//! [`super::wal`]): what it erased is then in neither of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::{Connection, ErrorCode};
use tokio::sync::{mpsc, oneshot, watch};

use super::wal::Folding;
use crate::{Error, Result, failpoint};

/// The most operations in one transaction: bounds how long the first one waits for the rest.
const BATCH: usize = 512;
/// The most queued operations; further callers wait for a free slot.
const QUEUE: usize = 1024;

/// The most writes that wait for the next transaction.
const MOST_LATER: usize = 100_000;

/// An operation to run inside a transaction, and the channel for its result.
trait Work: Send {
    fn run(&mut self, conn: &Connection) -> Result<()>;
    /// Whether it removes what somebody said.
    fn erases(&self) -> bool;
    fn answer(self: Box<Self>, commit: Result<()>);
}

/// A request to the writer thread.
enum WriterRequest {
    Work(Box<dyn Work>),
    /// The last request: checkpoint the write-ahead log, then answer.
    Close(oneshot::Sender<()>),
}

struct Job<T, F> {
    operation: Option<F>,
    outcome: Option<Result<T>>,
    erases: bool,
    answer: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnOnce(&Connection) -> Result<T> + Send> Work for Job<T, F> {
    fn run(&mut self, conn: &Connection) -> Result<()> {
        let Some(operation) = self.operation.take() else { return Ok(()) };
        let outcome = operation(conn);
        let error = outcome.as_ref().err().cloned();
        self.outcome = Some(outcome);
        error.map_or(Ok(()), Err)
    }

    fn erases(&self) -> bool {
        self.erases && self.outcome.as_ref().is_some_and(Result::is_ok)
    }

    fn answer(self: Box<Self>, commit: Result<()>) {
        let outcome = self.outcome.unwrap_or(Err(Error::Closed));
        // The caller may have dropped its future; the operation is committed all the same.
        let _ = self.answer.send(commit.and(outcome));
    }
}

/// Something that is written with the next transaction, and again with the one after if that fails.
type Later = Box<dyn Fn(&Connection) -> Result<()> + Send>;

/// Writes that nobody waits for.
#[derive(Clone, Default)]
struct LaterWrites(Arc<Mutex<Vec<Later>>>);

impl LaterWrites {
    fn locked(&self) -> MutexGuard<'_, Vec<Later>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for LaterWrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LaterWrites({})", self.locked().len())
    }
}

#[derive(Debug)]
pub(super) struct Writer {
    queue: mpsc::Sender<WriterRequest>,
    later: LaterWrites,
    failed: watch::Receiver<Option<Error>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(conn: Connection, folding: Folding) -> std::io::Result<Self> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (failed_tx, failed) = watch::channel(None);
        let later = LaterWrites::default();
        let thread = std::thread::Builder::new().name("bowline-writer".into()).spawn({
            let later = later.clone();
            move || write_loop(&conn, waiting, &later, &failed_tx, folding)
        })?;
        Ok(Self { queue, later, failed, thread: Some(thread) })
    }

    /// Runs an operation in the next transaction and answers after its commit.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.queue(operation, false).await
    }

    /// Runs an operation in the next transaction that there is for another reason: it costs no flush
    /// of its own. It must not refuse. Beyond a bound the oldest are dropped: the disk is full for long.
    pub(super) fn later(&self, operation: impl Fn(&Connection) -> Result<()> + Send + 'static) {
        let mut later = self.later.locked();
        if later.len() >= MOST_LATER {
            drop(later.remove(0));
        }
        later.push(Box::new(operation));
    }

    pub(super) fn has_later(&self) -> bool {
        !self.later.locked().is_empty()
    }

    /// Runs an operation that removes what somebody said; answers when it is in no file any more,
    /// unless readers prevent that for now.
    pub(super) async fn erase<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.queue(operation, true).await
    }

    async fn queue<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
        erases: bool,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let job = Job { operation: Some(operation), outcome: None, erases, answer };
        self.queue.send(WriterRequest::Work(Box::new(job))).await.map_err(|_| self.end())?;
        answered.await.unwrap_or_else(|_| Err(self.end()))
    }

    /// Commits what is queued, checkpoints the write-ahead log, and ends the thread. Later
    /// operations fail with [`Error::Closed`].
    pub(super) async fn close(&self) {
        let (tell, told) = oneshot::channel();
        if self.queue.send(WriterRequest::Close(tell)).await.is_ok() {
            let _ = told.await;
        }
    }

    /// Why the writer thread has ended.
    fn end(&self) -> Error {
        self.failed.borrow().clone().unwrap_or(Error::Closed)
    }

    /// Resolves when the database has failed permanently.
    pub(super) async fn failed(&self) -> Error {
        let mut failed = self.failed.clone();
        match failed.wait_for(Option::is_some).await {
            Ok(error) => error.clone().unwrap_or(Error::Closed),
            Err(_) => Error::Fatal("the writer thread stopped".into()),
        }
    }
}

impl Drop for Writer {
    /// Waits for the queue and the checkpoint, so that the next start has nothing to recover.
    fn drop(&mut self) {
        let (closed, _) = mpsc::channel(1);
        self.queue = closed;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_loop(
    conn: &Connection,
    mut waiting: mpsc::Receiver<WriterRequest>,
    later: &LaterWrites,
    failed: &watch::Sender<Option<Error>>,
    mut folding: Folding,
) {
    let mut batch: Vec<Box<dyn Work>> = Vec::with_capacity(BATCH);
    let mut closing = None;
    while closing.is_none()
        && let Some(first) = waiting.blocking_recv()
    {
        let mut next = Some(first);
        while let Some(asked) = next {
            match asked {
                WriterRequest::Work(work) => batch.push(work),
                WriterRequest::Close(tell) => closing = Some(tell),
            }
            let more = batch.len() < BATCH && closing.is_none();
            next = more.then(|| waiting.try_recv().ok()).flatten();
        }
        let outcome = match failed.borrow().clone() {
            Some(fatal) => Err(fatal),
            None => transact(conn, &mut batch, later),
        };
        if let Err(error @ Error::Fatal(_)) = &outcome {
            tracing::error!(%error, "the database failed permanently; no further commit is made");
            failed.send_replace(Some(error.clone()));
        }
        for job in batch.extract_if(.., |job| !job.erases()) {
            job.answer(outcome.clone());
        }
        if outcome.is_ok() {
            folding.fold_if_due(conn, !batch.is_empty());
        }
        for job in batch.drain(..) {
            job.answer(outcome.clone());
        }
    }
    waiting.close();
    // After a failed flush the log stays as it is, for the next start to recover from.
    if failed.borrow().is_none() {
        if let Err(error) = transact(conn, &mut [], later) {
            tracing::warn!(%error, "what waited for the next commit is not written");
        }
        folding.close(conn, closing.is_some());
    }
    if let Some(tell) = closing {
        let _ = tell.send(());
    }
}

/// Runs a batch in one transaction.
fn transact(conn: &Connection, batch: &mut [Box<dyn Work>], later: &LaterWrites) -> Result<()> {
    let beside = std::mem::take(&mut *later.locked());
    if batch.is_empty() && beside.is_empty() {
        return Ok(());
    }
    let outcome = run_all(conn, batch, &beside);
    if outcome.is_err() {
        if !conn.is_autocommit() {
            let _ = execute(conn, "ROLLBACK");
        }
        // With the next one, before what came meanwhile.
        later.locked().splice(0..0, beside);
    }
    outcome
}

fn run_all(conn: &Connection, batch: &mut [Box<dyn Work>], beside: &[Later]) -> Result<()> {
    execute(conn, "BEGIN IMMEDIATE")?;
    beside.iter().try_for_each(|write| run_later(conn, write))?;
    for job in batch {
        let before = conn.total_changes();
        if let Err(error) = job.run(conn) {
            // On a full disk or an I/O error SQLite rolls the whole transaction back by itself.
            if conn.is_autocommit() {
                return Err(error);
            }
            if conn.total_changes() != before {
                return Err(match error {
                    fatal @ Error::Fatal(_) => fatal,
                    other => Error::Unavailable(format!("an operation failed half-way: {other}")),
                });
            }
        }
    }
    failpoint::pass("commit");
    execute(conn, "COMMIT")?;
    failpoint::committed();
    Ok(())
}

/// Runs what nobody waits for. A write that does not fit the schema is dropped: if it were kept, it
/// would fail every later batch as well.
fn run_later(conn: &Connection, write: &Later) -> Result<()> {
    execute(conn, "SAVEPOINT later")?;
    match write(conn) {
        Ok(()) => {}
        // On a full disk or an I/O error SQLite may have rolled the whole transaction back by itself.
        Err(error) if conn.is_autocommit() || may_pass(&error) => return Err(error),
        Err(error) => {
            tracing::warn!(%error, "a write that can never succeed is dropped");
            execute(conn, "ROLLBACK TO later")?;
        }
    }
    execute(conn, "RELEASE later")
}

/// Whether the database is at fault, and not the write.
fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_) | Error::Fatal(_) | Error::Closed)
}

fn execute(conn: &Connection, sql: &str) -> Result<()> {
    conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ffi::{
            SQLITE_IOERR_CORRUPTFS, SQLITE_IOERR_DATA, SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC,
        };
        let text = error.to_string();
        match &error {
            rusqlite::Error::SqliteFailure(failure, _) => {
                match (failure.code, failure.extended_code) {
                    (
                        ErrorCode::SystemIoFailure,
                        SQLITE_IOERR_FSYNC
                        | SQLITE_IOERR_DIR_FSYNC
                        | SQLITE_IOERR_DATA
                        | SQLITE_IOERR_CORRUPTFS,
                    )
                    | (ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase, _) => {
                        Error::Fatal(text)
                    }
                    (
                        ErrorCode::ConstraintViolation
                        | ErrorCode::TypeMismatch
                        | ErrorCode::TooBig,
                        _,
                    ) => Error::Corrupt(text),
                    _ => Error::Unavailable(text),
                }
            }
            _ => Error::Corrupt(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn count(writer: &Writer) -> i64 {
        let count =
            |conn: &Connection| Ok(conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0))?);
        writer.run(count).await.unwrap()
    }

    fn write(conn: &Connection) -> Result<()> {
        conn.execute("INSERT INTO t VALUES (1)", [])?;
        Ok(())
    }

    #[tokio::test]
    async fn g4_what_fails_half_way_is_taken_back_and_what_only_refuses_disturbs_nobody() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t (x)").unwrap();
        let writer = Writer::start(conn, Folding::default()).unwrap();
        writer.run(write).await.unwrap();
        let refused = writer.run(|_| Err::<(), _>(Error::NoSession)).await;
        assert_eq!(refused, Err(Error::NoSession));
        let broken = writer.run(|conn| write(conn).and(Err::<(), _>(Error::NoSession))).await;
        assert!(matches!(broken, Err(Error::Unavailable(_))), "{broken:?}");
        assert_eq!(count(&writer).await, 1);
        let fatal = writer.run(|conn| write(conn).and(Err::<(), _>(Error::Fatal("disk".into()))));
        assert_eq!(fatal.await, Err(Error::Fatal("disk".into())));
        assert_eq!(writer.failed().await, Error::Fatal("disk".into()));
        let after = writer.run(write).await;
        assert_eq!(after, Err(Error::Fatal("disk".into())), "nothing is acknowledged any more");
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_written_with_the_next_commit_and_again_if_that_fails() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t (x)").unwrap();
        let writer = Writer::start(conn, Folding::default()).unwrap();
        writer.later(write);
        assert!(writer.has_later());
        let broken = writer.run(|conn| write(conn).and(Err::<(), _>(Error::NoSession))).await;
        assert!(broken.is_err() && writer.has_later(), "it was taken back with its transaction");
        writer.later(write);
        assert_eq!(count(&writer).await, 2);
        assert!(!writer.has_later());
    }

    #[tokio::test]
    async fn what_can_never_be_written_is_dropped_and_fails_nobody() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t (x INTEGER NOT NULL) STRICT").unwrap();
        let writer = Writer::start(conn, Folding::default()).unwrap();
        writer.later(write);
        // Its first half is taken back, too.
        writer.later(|conn| {
            write(conn)?;
            conn.execute("INSERT INTO t VALUES (9223372036854775807 + 1)", [])?;
            Ok(())
        });
        writer.later(write);
        writer.run(write).await.unwrap();
        assert_eq!(count(&writer).await, 3);
        assert!(!writer.has_later());
    }

    #[tokio::test]
    async fn what_cannot_be_written_for_now_is_kept() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t (x)").unwrap();
        let writer = Writer::start(conn, Folding::default()).unwrap();
        writer.later(|_| Err(Error::Unavailable("the disk is full".into())));
        assert!(matches!(writer.run(write).await, Err(Error::Unavailable(_))));
        assert!(writer.has_later());
    }

    #[tokio::test]
    async fn what_waits_is_written_when_the_writer_ends() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.db");
        for closes in [true, false] {
            let conn = Connection::open(&file).unwrap();
            conn.execute_batch("CREATE TABLE IF NOT EXISTS t (x)").unwrap();
            let writer = Writer::start(conn, Folding::default()).unwrap();
            writer.later(write);
            if closes {
                writer.close().await;
            }
        }
        let conn = Connection::open(&file).unwrap();
        let rows: i64 = conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 2);
    }

    #[tokio::test]
    async fn g16_a_close_waits_for_the_checkpoint_of_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.db");
        let conn = Connection::open(&file).unwrap();
        conn.execute_batch(
            "PRAGMA journal_mode = WAL; CREATE TABLE t (x);
                            CREATE TABLE usage (opened_at, incomplete_since, folds);",
        )
        .unwrap();
        let (end, may_end) = std::sync::mpsc::channel();
        let marking = std::thread::spawn(move || may_end.recv().unwrap());
        let writer = Writer::start(conn, Folding::new(false, marking)).unwrap();
        writer.run(write).await.unwrap();
        let log = folder.path().join("t.db-wal");
        let length = || std::fs::metadata(&log).map_or(0, |log| log.len());
        let closed = writer.close();
        tokio::pin!(closed);
        let early = tokio::time::timeout(Duration::from_millis(50), &mut closed).await;
        let meanwhile = length();
        end.send(()).unwrap();
        closed.await;
        assert!(early.is_err(), "it waits");
        assert!(meanwhile > 0, "before its own checkpoint, which SQLite would refuse meanwhile");
        assert_eq!(length(), 0);
    }
}
