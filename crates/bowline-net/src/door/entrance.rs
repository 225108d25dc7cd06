//! The way in for connections that begin inside the process: streams of paired devices, which came
//! through a relay and were authenticated there.
//!
//! Apart from the accept loop, because nobody accepts here: who brings a stream is told at once
//! whether it is taken.
//!
//! Invariants
//! - What waits to be served holds its permits already, so the queue is as long as there are
//!   connections allowed.
//! - A stream that is not taken is dropped.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc};

use crate::peer::{ConnectionPermit, DeviceEntry, OpenConnections};
use crate::stream::{Duplex, Stream};

/// Hands streams of devices to a [`Door`](super::Door).
#[derive(Debug, Clone)]
pub struct Entrance {
    /// Permits of all connections of the door.
    places: Arc<Semaphore>,
    open: Arc<OpenConnections>,
    queue: mpsc::UnboundedSender<Entering>,
}

/// A stream that was taken and is not served yet.
#[derive(Debug)]
pub(super) struct Entering {
    pub(super) stream: Stream,
    pub(super) device: DeviceEntry,
    pub(super) place: ConnectionPermit,
}

/// Why a stream was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryRefused {
    #[error("the server is stopping")]
    Stopped,
    #[error("the server has as many connections as it may")]
    Full,
    #[error("the device has as many connections as it may")]
    DeviceFull,
}

impl Entrance {
    pub(super) fn new(
        places: Arc<Semaphore>,
        open: Arc<OpenConnections>,
    ) -> (Self, mpsc::UnboundedReceiver<Entering>) {
        let (queue, entering) = mpsc::unbounded_channel();
        (Self { places, open, queue }, entering)
    }

    /// Has a stream of that device served as any other connection is, without TLS: the device was
    /// authenticated, and its stream is sealed up to here.
    pub fn enter(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        device: DeviceEntry,
    ) -> Result<(), EntryRefused> {
        let of_device = self.open.from_device(&device).map_err(|_| EntryRefused::DeviceFull)?;
        let of_all = Arc::clone(&self.places).try_acquire_owned();
        let place = ConnectionPermit::new(of_all.map_err(|_| EntryRefused::Full)?, of_device);
        let stream = Stream::Inside(Duplex::new(stream));
        self.queue.send(Entering { stream, device, place }).map_err(|_| EntryRefused::Stopped)
    }
}
