//! The queue of what waits to be sent in one lane, and the task that sends it.
//!
//! One for all servers, which differ in their [`Transport`]. One batch is under way; what gathers
//! meanwhile is the next one. So a batch is as large as the server is slow, and no timer is needed.
//! While the connection is lost messages are refused at once: who waits may take another way.
//!
//! Invariants
//! - A send ends within [`SEND_LIMIT`] and the time that is allowed for its size, whatever the server does.
//! - What was given up is not written: it is sent again, and a slow server is not given both.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bowline_net::backoff::{Backoff, Retry};
use bowline_sbp::session::ReplicaId;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::health::{Reporter, Reports};
use crate::{BusError, Lane};

/// The longest time that a send of a small message takes.
const SEND_LIMIT: Duration = Duration::from_secs(2);

/// The longest time that a server takes for one small batch, or for a new connection.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_millis(1500);

/// How much longer a large batch may take: 1 MiB a second is the slowest bus that is of use for it.
fn time_for(bytes: usize) -> Duration {
    Duration::from_secs(1).mul_f64(bytes as f64 / f64::from(1 << 20))
}

/// The wait before a new connection.
pub(crate) const BACKOFF: Backoff =
    Backoff { start: Duration::from_millis(100), cap: Duration::from_secs(2) };

/// Sends that wait in a queue; more wait in front of it.
const WAITING: usize = 256;

/// A batch is closed when it has as many messages or bytes.
const BATCH_MESSAGES: usize = 512;
const BATCH_BYTES: usize = 1 << 20;

/// How batches reach a server.
pub(crate) trait Transport: Send + Sync + 'static {
    type Connection: Send;

    fn connect(&self) -> impl Future<Output = Result<Self::Connection, BusError>> + Send;

    /// Ends when the connection is lost while nothing is sent.
    fn lost(&self, connection: &mut Self::Connection) -> impl Future<Output = BusError> + Send;

    /// Returns the receivers that do not read from this server, as far as it knows.
    fn write(
        &self,
        connection: &mut Self::Connection,
        batch: &[Outgoing],
    ) -> impl Future<Output = Result<HashSet<ReplicaId>, BusError>> + Send;
}

/// Whether a server that took messages hears from their receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiver {
    Reads,
    /// It may have ended, or be cut off from this server alone.
    Silent,
}

/// Messages that wait to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) to: ReplicaId,
    pub(crate) messages: Vec<Bytes>,
    done: oneshot::Sender<Result<Receiver, BusError>>,
}

impl Outgoing {
    fn bytes(&self) -> usize {
        self.messages.iter().map(Bytes::len).sum()
    }
}

/// The queues of a bus, one for each lane: neither waits for the other.
#[derive(Debug)]
pub(crate) struct SendQueues {
    control: SendQueue,
    text: SendQueue,
}

impl SendQueues {
    /// To be called within a runtime.
    pub(crate) fn start<T: Transport>(
        reports: &Arc<Reports>,
        transport: impl Fn(Lane) -> T,
    ) -> Self {
        let queue = |lane| SendQueue::start(transport(lane), reports.reporter());
        Self { control: queue(Lane::Control), text: queue(Lane::Text) }
    }

    pub(crate) async fn send(
        &self,
        to: ReplicaId,
        lane: Lane,
        messages: Vec<Bytes>,
    ) -> Result<Receiver, BusError> {
        match lane {
            Lane::Control => self.control.send(to, messages).await,
            Lane::Text => self.text.send(to, messages).await,
        }
    }
}

/// Sends in one lane.
#[derive(Debug)]
struct SendQueue(mpsc::Sender<Outgoing>);

impl SendQueue {
    /// The task ends when this is dropped.
    fn start<T: Transport>(transport: T, reporter: Reporter) -> Self {
        let (sender, queue) = mpsc::channel(WAITING);
        tokio::spawn(Sender { transport, queue, reporter }.run());
        Self(sender)
    }

    async fn send(&self, to: ReplicaId, messages: Vec<Bytes>) -> Result<Receiver, BusError> {
        if messages.is_empty() {
            return Ok(Receiver::Reads);
        }
        let limit = SEND_LIMIT + time_for(messages.iter().map(Bytes::len).sum());
        let stopped = || BusError::Unreachable("its connection has ended".into());
        let sent = async {
            let (done, result) = oneshot::channel();
            let waiting = self.0.send(Outgoing { to, messages, done }).await;
            waiting.map_err(|_| stopped())?;
            result.await.map_err(|_| stopped())?
        };
        timeout(limit, sent).await.unwrap_or_else(|_| Err(no_answer()))
    }
}

/// The error of a server that does not answer.
pub(crate) fn no_answer() -> BusError {
    BusError::Unreachable("it does not answer".into())
}

/// A random number for the jitter of a wait.
pub(crate) fn jitter() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX)
}

struct Sender<T> {
    transport: T,
    queue: mpsc::Receiver<Outgoing>,
    reporter: Reporter,
}

/// All who could send are gone.
struct Closed;

impl<T: Transport> Sender<T> {
    async fn run(mut self) {
        let mut retry = Retry::new(BACKOFF);
        // Messages wait for the first attempt: a bus that was just made is not lost.
        let mut attempt = connect(&self.transport).await;
        loop {
            let why = match attempt {
                Ok(connection) => {
                    retry.reset();
                    self.reporter.good();
                    match self.write_all(connection).await {
                        Ok(why) => why,
                        Err(Closed) => return,
                    }
                }
                Err(why) => why,
            };
            self.reporter.bad(&why);
            attempt = match self.refuse_until_retry(&why, retry.wait(jitter())).await {
                Ok(attempt) => attempt,
                Err(Closed) => return,
            };
        }
    }

    /// Sends until the connection is lost.
    async fn write_all(&mut self, mut connection: T::Connection) -> Result<BusError, Closed> {
        loop {
            let first = tokio::select! {
                first = self.queue.recv() => first.ok_or(Closed)?,
                why = self.transport.lost(&mut connection) => return Ok(why),
            };
            let mut batch = self.gather(first);
            batch.retain(|outgoing| !outgoing.done.is_closed());
            if batch.is_empty() {
                continue;
            }
            let limit = ANSWER_LIMIT + time_for(batch.iter().map(Outgoing::bytes).sum());
            let written = self.transport.write(&mut connection, &batch);
            let result = timeout(limit, written).await.unwrap_or_else(|_| Err(no_answer()));
            let receiver = |to| match &result {
                Ok(silent) if silent.contains(&to) => Ok(Receiver::Silent),
                Ok(_) => Ok(Receiver::Reads),
                Err(why) => Err(why.clone()),
            };
            for outgoing in batch {
                let _ = outgoing.done.send(receiver(outgoing.to));
            }
            if let Err(why) = result {
                return Ok(why);
            }
        }
    }

    /// The next batch: what waits already.
    fn gather(&mut self, first: Outgoing) -> Vec<Outgoing> {
        let mut batch = vec![first];
        let (mut messages, mut bytes) = (0, 0);
        loop {
            let last = &batch[batch.len() - 1];
            messages += last.messages.len();
            bytes += last.bytes();
            if messages >= BATCH_MESSAGES || bytes >= BATCH_BYTES {
                return batch;
            }
            match self.queue.try_recv() {
                Ok(next) => batch.push(next),
                Err(_) => return batch,
            }
        }
    }

    /// Tries again after a wait; what is sent until then is refused.
    async fn refuse_until_retry(
        &mut self,
        why: &BusError,
        wait: Duration,
    ) -> Result<Result<T::Connection, BusError>, Closed> {
        let retried = async {
            sleep(wait).await;
            connect(&self.transport).await
        };
        tokio::pin!(retried);
        loop {
            tokio::select! {
                biased;
                attempt = &mut retried => return Ok(attempt),
                outgoing = self.queue.recv() => {
                    let _ = outgoing.ok_or(Closed)?.done.send(Err(why.clone()));
                }
            }
        }
    }
}

async fn connect<T: Transport>(transport: &T) -> Result<T::Connection, BusError> {
    timeout(ANSWER_LIMIT, transport.connect()).await.unwrap_or_else(|_| Err(no_answer()))
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;
    use uuid::Uuid;

    use super::*;

    /// Tells what it is given to write, and takes a permit for it.
    struct Gated {
        gate: Arc<Semaphore>,
        begun: mpsc::UnboundedSender<Vec<Bytes>>,
    }

    impl Transport for Gated {
        type Connection = ();

        async fn connect(&self) -> Result<(), BusError> {
            Ok(())
        }

        async fn lost(&self, (): &mut ()) -> BusError {
            std::future::pending().await
        }

        async fn write(
            &self,
            (): &mut (),
            batch: &[Outgoing],
        ) -> Result<HashSet<ReplicaId>, BusError> {
            let messages = batch.iter().flat_map(|outgoing| outgoing.messages.clone());
            self.begun.send(messages.collect()).map_err(|_| no_answer())?;
            self.gate.acquire().await.map_err(|_| no_answer())?.forget();
            Ok(HashSet::new())
        }
    }

    fn message(text: &'static str) -> Vec<Bytes> {
        vec![Bytes::from_static(text.as_bytes())]
    }

    #[tokio::test]
    async fn what_its_sender_gave_up_is_not_written() {
        let (gate, to) = (Arc::new(Semaphore::new(0)), ReplicaId(Uuid::nil()));
        let (begun, mut written) = mpsc::unbounded_channel();
        let transport = Gated { gate: Arc::clone(&gate), begun };
        let queue = Arc::new(SendQueue::start(transport, Reports::new().reporter()));
        let send = |text| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { queue.send(to, message(text)).await })
        };
        let first = send("first");
        assert_eq!(written.recv().await, Some(message("first")));
        tokio::select! {
            biased;
            _ = queue.send(to, message("given up")) => panic!("nothing is written yet"),
            () = std::future::ready(()) => {}
        }
        let again = send("again");
        gate.add_permits(2);
        assert_eq!(first.await.unwrap(), Ok(Receiver::Reads));
        assert_eq!(written.recv().await, Some(message("again")));
        assert_eq!(again.await.unwrap(), Ok(Receiver::Reads));
    }

    #[test]
    fn large_messages_have_more_time() {
        assert_eq!(time_for(1000).as_millis(), 0);
        assert_eq!(time_for(8 << 20), Duration::from_secs(8));
    }
}
