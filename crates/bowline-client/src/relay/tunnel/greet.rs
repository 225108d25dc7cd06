//! The first message of a session in each direction, over a [`Session`].

use std::time::Duration;

use bowline_sbrp::tunnel::HelloReply;
use tokio::time::timeout;

use crate::relay::reasons::SessionEnd;
use crate::relay::session::{SendError, Session, Unpaused};

/// Why a session did not become part of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GreetError {
    /// The daemon refused, and says why.
    #[error("{}", refusal(.0))]
    Refused(HelloReply),
    /// The other end does not say what it should.
    #[error("the other end does not say what it should")]
    Garbled,
    /// The other end says nothing.
    #[error("the other end says nothing")]
    Silent,
    /// The daemon was away before the tunnel began.
    #[error("the daemon was away before the tunnel began")]
    Interrupted,
    /// The session ended first.
    #[error(transparent)]
    Ended(#[from] SessionEnd),
}

impl GreetError {
    /// Whether the next session may succeed.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Refused(reply) => matches!(reply, HelloReply::Busy | HelloReply::Failed),
            Self::Silent | Self::Interrupted | Self::Ended(_) => true,
            Self::Garbled => false,
        }
    }
}

impl From<SendError> for GreetError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Ended(end) => Self::Ended(end),
            SendError::Full | SendError::TooLong(_) => Self::Garbled,
        }
    }
}

fn refusal(reply: &HelloReply) -> &'static str {
    match reply {
        HelloReply::NotPaired => "the daemon does not know this device",
        HelloReply::Version => "the daemon speaks another version",
        HelloReply::BadCode => "the pairing code is wrong, was used, or has expired",
        HelloReply::Busy => "the daemon has as many connections as it may have",
        HelloReply::Failed | HelloReply::Welcome(_) => "the daemon cannot answer now",
    }
}

/// The next message, within a deadline.
pub(super) async fn hear(session: &mut Session, within: Duration) -> Result<Vec<u8>, GreetError> {
    match timeout(within, session.recv_unpaused()).await {
        Ok(Unpaused::Message(message)) => Ok(message),
        // The request or its answer may be lost, and neither side would send again: start over
        // instead of waiting for both deadlines.
        Ok(Unpaused::Paused) => Err(GreetError::Interrupted),
        Ok(Unpaused::Over) => Err(GreetError::Ended(session.end().unwrap_or(SessionEnd::Left))),
        Err(_) => Err(GreetError::Silent),
    }
}
