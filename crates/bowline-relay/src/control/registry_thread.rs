//! A thread that owns a registry connection and runs one job after another: database calls block,
//! and async code must not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::{mpsc, oneshot};

use super::registry::{Error, Registry};

/// Jobs that may be queued; further callers wait for space.
const QUEUE: usize = 1024;

type Job = Box<dyn FnOnce(&mut Registry) + Send>;

#[derive(Debug, Clone)]
pub(super) struct RegistryThread {
    queue: mpsc::Sender<Job>,
}

impl RegistryThread {
    pub(super) fn start(mut registry: Registry) -> std::io::Result<Self> {
        let (queue, mut waiting) = mpsc::channel::<Job>(QUEUE);
        std::thread::Builder::new().name("bowline-control".into()).spawn(move || {
            while let Some(job) = waiting.blocking_recv() {
                // A panic rolls the transaction back, so the next job finds a consistent registry.
                if catch_unwind(AssertUnwindSafe(|| job(&mut registry))).is_err() {
                    metrics::counter!("bowline_control_panics_total").increment(1);
                }
            }
        })?;
        Ok(Self { queue })
    }

    /// Runs a job. Once queued, it is run even if its caller no longer waits for it.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Registry) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |registry| {
            let _ = answer.send(job(registry));
        });
        self.queue.send(job).await.map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }
}
