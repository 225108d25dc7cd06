//! Reader threads: each has its own connection and takes the next query from a queue.
//!
//! Readers see the last committed state and never wait for the writer (WAL). Each query runs in one
//! transaction: between two statements a session could be deleted and its row number reused.
//!
//! The queue is a mutex and a condition variable, so that a query wakes exactly one thread. A
//! channel has one receiver; threads that share it behind a lock wake each other, too.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{Error, Result};

/// The most queued queries; further callers wait for a free slot.
const QUEUE: usize = 1024;

type Question = Box<dyn FnOnce(&Connection) + Send>;

#[derive(Debug)]
pub(super) struct Readers {
    queue: Arc<Queue>,
    room: Arc<Semaphore>,
}

/// Queries in the order of arrival.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Default)]
struct Waiting {
    questions: VecDeque<(Question, OwnedSemaphorePermit)>,
    /// No further queries will be queued.
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.lock().questions.len()).finish()
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, question: Question, place: OwnedSemaphorePermit) {
        self.lock().questions.push_back((question, place));
        self.came.notify_one();
    }

    /// Waits for the next query and frees its slot; none when the queue is closed.
    fn next(&self) -> Option<Question> {
        let waits = |waiting: &mut Waiting| waiting.questions.is_empty() && !waiting.closed;
        let waiting = self.came.wait_while(self.lock(), waits);
        let next = waiting.unwrap_or_else(PoisonError::into_inner).questions.pop_front();
        next.map(|(question, _)| question)
    }

    fn close(&self) {
        self.lock().closed = true;
        self.came.notify_all();
    }
}

impl Readers {
    pub(super) fn start(connections: Vec<Connection>) -> std::io::Result<Self> {
        let readers = Self { queue: Arc::default(), room: Arc::new(Semaphore::new(QUEUE)) };
        for conn in connections {
            let queue = Arc::clone(&readers.queue);
            std::thread::Builder::new().name("bowline-reader".into()).spawn(move || {
                while let Some(question) = queue.next() {
                    // A panic fails its own query only; the thread must go on.
                    if catch_unwind(AssertUnwindSafe(|| question(&conn))).is_err() {
                        let _ = conn.execute_batch("ROLLBACK");
                    }
                }
            })?;
        }
        Ok(readers)
    }

    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let question: Question = Box::new(move |conn| {
            let _ = answer.send(at_one_instant(conn, question));
        });
        let place = Arc::clone(&self.room).acquire_owned().await.map_err(|_| Error::Closed)?;
        self.queue.push(question, place);
        answered.await.map_err(|_| Error::Closed)?
    }
}

impl Drop for Readers {
    /// Queued queries are still answered.
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn at_one_instant<T>(
    conn: &Connection,
    question: impl FnOnce(&Connection) -> Result<T>,
) -> Result<T> {
    conn.prepare_cached("BEGIN")?.execute([])?;
    let answer = question(conn);
    // After some errors SQLite has rolled back by itself.
    if !conn.is_autocommit() {
        conn.prepare_cached("COMMIT")?.execute([])?;
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers(count: usize) -> Readers {
        let connections = (0..count).map(|_| Connection::open_in_memory().unwrap()).collect();
        Readers::start(connections).unwrap()
    }

    #[tokio::test]
    async fn questions_are_answered_side_by_side() {
        let (readers, both) = (readers(2), Arc::new(std::sync::Barrier::new(2)));
        let meet = || {
            let both = Arc::clone(&both);
            readers.ask(move |_| Ok(both.wait().is_leader()))
        };
        // Each waits for the other: one thread alone would never answer.
        let (one, other) = tokio::join!(meet(), meet());
        assert_ne!(one, other);
        assert_eq!(readers.room.available_permits(), QUEUE);
    }

    #[tokio::test]
    async fn a_question_that_panics_costs_nobody_else_an_answer() {
        let readers = readers(1);
        assert_eq!(readers.ask(|_| -> Result<()> { panic!("a test") }).await, Err(Error::Closed));
        assert_eq!(readers.ask(|_| Ok(7)).await, Ok(7));
    }

    #[tokio::test]
    async fn what_waits_at_the_end_is_still_answered() {
        let queue = Queue::default();
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        queue.push(Box::new(|_| {}), place);
        queue.close();
        assert!(queue.next().is_some() && queue.next().is_none());
    }
}
