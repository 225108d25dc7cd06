//! The contract of every bus.

use bowline_sbp::session::ReplicaId;
use bytes::Bytes;
use tokio::sync::watch;

/// Sends messages to replicas.
#[async_trait::async_trait]
pub trait Bus: std::fmt::Debug + Send + Sync + 'static {
    /// Opens the inbox of this replica. What is sent to it from now on is kept for it.
    async fn open(&self, me: ReplicaId) -> Result<Box<dyn Inbox>, BusError>;

    /// Sends messages to a replica, in order. `Ok` does not mean that they arrive; to a replica that
    /// does not exist they are lost.
    async fn send(&self, to: ReplicaId, lane: Lane, messages: Vec<Bytes>) -> Result<(), BusError>;

    /// How the bus does, for readiness checks.
    fn health(&self) -> watch::Receiver<BusHealth>;
}

/// The messages for one replica. Closed when it is dropped.
#[async_trait::async_trait]
pub trait Inbox: Send {
    /// Waits for messages; those of a lane in order. Never fails: while the bus is lost it waits, and
    /// connects again by itself. Cancel safe: what it has not returned is returned next time.
    async fn next(&mut self) -> Vec<(Lane, Bytes)>;
}

/// Messages of different lanes do not wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Commands, replies, live states: small, and soon sent again if they are lost.
    Control,
    /// Text of running turns: much of it, and read again from its owner if some is lost.
    Text,
}

/// Whether messages arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusHealth {
    Good,
    /// Messages come late or on a slower way; why, in a sentence without secrets.
    Degraded(String),
}

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    #[error("the message bus cannot be reached: {0}")]
    Unreachable(String),
    #[error("the message bus refuses: {0}")]
    Refused(String),
}
