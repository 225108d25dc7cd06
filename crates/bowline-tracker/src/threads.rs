//! The threads that own the connections to the registry: database calls block, and async code must not.
//!
//! One writes, several read, so that a look-up does not wait for an announcement.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

use crate::registry::{Error, Registry};

/// Jobs that may be queued for one thread; further callers wait for space.
const QUEUE: usize = 256;
const READERS: usize = 2;

type Job = Box<dyn FnOnce(&mut Registry) + Send>;

/// The threads of an open registry. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct RegistryThreads {
    writer: mpsc::Sender<Job>,
    readers: Arc<[mpsc::Sender<Job>]>,
    next: Arc<AtomicUsize>,
}

impl RegistryThreads {
    /// `reader` opens one more connection.
    pub(crate) fn start<E: From<std::io::Error>>(
        registry: Registry,
        reader: impl Fn() -> Result<Registry, E>,
    ) -> Result<Self, E> {
        let writer = start("bowline-tracker", registry)?;
        let readers =
            (0..READERS).map(|_| -> Result<_, E> { Ok(start("bowline-lookup", reader()?)?) });
        let readers = readers.collect::<Result<Arc<[_]>, E>>()?;
        Ok(Self { writer, readers, next: Arc::default() })
    }

    /// Changes the registry. Once queued, it is done even if its caller no longer waits for it.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Registry) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        ask(&self.writer, job).await
    }

    /// Reads what was committed last.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Registry) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.readers.len();
        ask(&self.readers[at], job).await
    }
}

fn start(name: &str, mut registry: Registry) -> std::io::Result<mpsc::Sender<Job>> {
    let (queue, mut waiting) = mpsc::channel::<Job>(QUEUE);
    std::thread::Builder::new().name(name.into()).spawn(move || {
        while let Some(job) = waiting.blocking_recv() {
            // A panic rolls the transaction back, so the next job finds a consistent registry.
            if catch_unwind(AssertUnwindSafe(|| job(&mut registry))).is_err() {
                tracing::error!("a job of the registry panicked");
            }
        }
    })?;
    Ok(queue)
}

async fn ask<T: Send + 'static>(
    queue: &mpsc::Sender<Job>,
    job: impl FnOnce(&mut Registry) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (answer, answered) = oneshot::channel();
    let job: Job = Box::new(move |registry| {
        let _ = answer.send(job(registry));
    });
    queue.send(job).await.map_err(|_| Error::Closed)?;
    answered.await.map_err(|_| Error::Closed)?
}
