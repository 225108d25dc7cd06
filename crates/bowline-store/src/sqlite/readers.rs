//! A few threads that read: each with its own connection, taking the next question that waits.
//!
//! Readers see the last committed state and never wait for the writer (WAL). All that one question
//! reads belongs to one instant: between two statements a session may go, and another one take its
//! row number.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::conn::Conn;
use crate::{Error, Result};

/// The most questions waiting before callers have to wait themselves.
const QUEUE: usize = 1024;

type Question = Box<dyn FnOnce(&Conn<'_>) + Send>;

#[derive(Debug)]
pub(super) struct Readers {
    queue: mpsc::Sender<Question>,
}

impl Readers {
    pub(super) fn start(connections: Vec<Connection>) -> std::io::Result<Self> {
        let (queue, waiting) = mpsc::channel::<Question>(QUEUE);
        let waiting = Arc::new(Mutex::new(waiting));
        for conn in connections {
            let waiting = Arc::clone(&waiting);
            std::thread::Builder::new().name("bowline-reader".into()).spawn(move || {
                let conn = Conn::new(&conn);
                loop {
                    // Whoever holds the lock waits for a question; the others wait for the lock.
                    let next =
                        waiting.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
                    let Some(question) = next else { break };
                    question(&conn);
                }
            })?;
        }
        Ok(Self { queue })
    }

    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Conn<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let question: Question = Box::new(move |conn| {
            let _ = answer.send(at_one_instant(conn, question));
        });
        self.queue.send(question).await.map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }
}

fn at_one_instant<T>(conn: &Conn<'_>, question: impl FnOnce(&Conn<'_>) -> Result<T>) -> Result<T> {
    conn.statement("BEGIN")?.execute([])?;
    let answer = question(conn);
    // After some errors SQLite has ended it by itself.
    if !conn.is_autocommit() {
        conn.statement("COMMIT")?.execute([])?;
    }
    answer
}
