//! A thread that holds the registry and does one thing after another: the database blocks, and
//! whoever asks must not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::{mpsc, oneshot};

use super::registry::{Error, Registry};

/// Errands that may wait; more wait at the counter.
const QUEUE: usize = 1024;

type Errand = Box<dyn FnOnce(&mut Registry) + Send>;

#[derive(Debug, Clone)]
pub(super) struct Clerk {
    queue: mpsc::Sender<Errand>,
}

impl Clerk {
    pub(super) fn start(mut registry: Registry) -> std::io::Result<Self> {
        let (queue, mut waiting) = mpsc::channel::<Errand>(QUEUE);
        std::thread::Builder::new().name("bowline-control".into()).spawn(move || {
            while let Some(errand) = waiting.blocking_recv() {
                // A transaction that unwinds is rolled back; the next errand finds all in order.
                if catch_unwind(AssertUnwindSafe(|| errand(&mut registry))).is_err() {
                    metrics::counter!("bowline_control_panics_total").increment(1);
                }
            }
        })?;
        Ok(Self { queue })
    }

    /// Has it done. An errand once queued is done even if nobody waits for it any more.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        errand: impl FnOnce(&mut Registry) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let errand: Errand = Box::new(move |registry| {
            let _ = answer.send(errand(registry));
        });
        self.queue.send(errand).await.map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }
}
