//! The first message in each direction: the requested service, and whether the daemon offers it.

use std::time::Duration;

use tokio::time::timeout;

use crate::relay::reasons::SessionEnd;
use crate::relay::session::{SendError, Session, Unpaused};

/// The services of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Ping,
    Tcp,
}

/// Why a service is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    #[error("the daemon does not offer this service")]
    NotOffered,
    #[error("the daemon speaks another version")]
    Version,
    #[error("the other end does not say what it should")]
    Garbled,
    #[error("the other end says nothing")]
    Silent,
    #[error("the daemon was away before the service began")]
    Interrupted,
    #[error(transparent)]
    Ended(#[from] SessionEnd),
}

impl HelloError {
    /// Whether a retry may succeed.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Silent | Self::Interrupted | Self::Ended(_))
    }
}

impl From<SendError> for HelloError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Ended(end) => Self::Ended(end),
            SendError::Full | SendError::TooLong(_) => Self::Garbled,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HelloReply {
    Yes = 0x00,
    NotOffered = 0x01,
    Version = 0x02,
}

/// The client's side: requests a service.
pub(super) async fn ask(session: &mut Session, service: Service) -> Result<(), HelloError> {
    session.send([MAGIC, &[VERSION], service.name().as_bytes()].concat()).await?;
    match hear(session).await?.strip_prefix(MAGIC) {
        Some([VERSION, 0x00]) => Ok(()),
        Some([VERSION, 0x01]) => Err(HelloError::NotOffered),
        Some([_, ..]) => Err(HelloError::Version),
        Some([]) | None => Err(HelloError::Garbled),
    }
}

/// The daemon's side: reads the requested service and answers with the result of `offers`.
pub(super) async fn answer(
    session: &mut Session,
    offers: impl Fn(Service) -> bool,
) -> Result<Service, HelloError> {
    let asked = hear(session).await?;
    let (answer, result) = match asked.strip_prefix(MAGIC) {
        Some([VERSION, name @ ..]) => match Service::named(name).filter(|one| offers(*one)) {
            Some(service) => (HelloReply::Yes, Ok(service)),
            None => (HelloReply::NotOffered, Err(HelloError::NotOffered)),
        },
        Some([_, ..]) => (HelloReply::Version, Err(HelloError::Version)),
        Some([]) | None => return Err(HelloError::Garbled),
    };
    session.send([MAGIC, &[VERSION, answer as u8]].concat()).await?;
    result
}

async fn hear(session: &mut Session) -> Result<Vec<u8>, HelloError> {
    match timeout(PATIENCE, session.recv_unpaused()).await {
        Ok(Unpaused::Message(message)) => Ok(message),
        // The request or its answer may be lost, and neither side would send again: start over
        // instead of waiting for both deadlines.
        Ok(Unpaused::Paused) => Err(HelloError::Interrupted),
        Ok(Unpaused::Over) => Err(HelloError::Ended(session.end().unwrap_or(SessionEnd::Left))),
        Err(_) => Err(HelloError::Silent),
    }
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Tcp => "tcp",
        }
    }

    fn named(name: &[u8]) -> Option<Self> {
        [Self::Ping, Self::Tcp].into_iter().find(|one| one.name().as_bytes() == name)
    }
}

const MAGIC: &[u8] = b"bowline";
const VERSION: u8 = 1;
/// A session may pause right after it was established; the grace period is half of this deadline.
const PATIENCE: Duration = Duration::from_secs(60);
