//! A client: connects to one daemon through the relay, and reconnects.
//!
//! [`RelayClient`] is a handle; one background task owns the connection and drives
//! [`bowline_sbrp::client::Client`].
//!
//! Invariants
//! - The daemon's key is pinned after the handshake verified it. A different key stops the client
//!   until the user approves it (SBRP-CLIENT-01, -02).
//! - A lost session is followed by a new one: new token, id, keys and handshake (SBRP-CLIENT-04).
//!   Each is a separate [`Session`], so that nothing is sent to the wrong one.
//! - A paused session resumes unchanged, or ends with a reason if a message was lost
//!   (SBRP-CLIENT-05).

mod connection;
mod driver;

use std::time::Duration;

use bowline_sbrp::control::{Code, SdkCode};
use bowline_sbrp::handshake::{KeyChange, Trust};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::UnfitKey;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::control_plane::{ControlError, ControlPlane};
use super::liveness::LivenessConfig;
use super::pins::{PinError, Pins};
use super::reasons::{LossReason, sentence, told};
use super::session::Session;
use driver::ClientDriver;

/// The daemon to connect to, the control plane and the pins.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    pub control: ControlPlane,
    pub daemon: DaemonId,
    pub pins: Pins,
    pub liveness: LivenessConfig,
    approved: Option<Trust>,
}

impl ClientConfig {
    pub fn new(control: ControlPlane, daemon: DaemonId, pins: Pins) -> Self {
        Self { control, daemon, pins, liveness: LivenessConfig::default(), approved: None }
    }

    /// The user compared both fingerprints and accepts the new key. It replaces the old pin only
    /// after a handshake verified it (SBRP-CLIENT-02).
    pub fn approve(mut self, change: KeyChange) -> Result<Self, UnfitKey> {
        self.approved = Some(change.approve()?);
        Ok(self)
    }
}

/// Events of a client.
#[derive(Debug)]
pub enum ClientEvent {
    /// The handshake is done.
    Established {
        session: Session,
        /// Host and port of the relay.
        relay: String,
        /// The daemon's key was not pinned before: the user should compare its fingerprint.
        first_use: bool,
    },
    /// The daemon is disconnected; outgoing messages are queued.
    Paused,
    /// The daemon reconnected and has not signalled yet whether it can resume the session.
    Pending,
    /// The session continues, with the same keys.
    Resumed,
    /// The daemon's key could not be pinned: the next start trusts on first use again
    /// (SBRP-CLIENT-08).
    NotPinned(PinError),
    /// There is no session now; the next attempt begins after `retry_in`.
    Lost { reason: LossReason, retry_in: Duration },
    /// The client stopped. This is the last event.
    Closed(ClientClosed),
}

/// Why a client stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientClosed {
    /// Show both fingerprints; [`ClientConfig::approve`] accepts the new one.
    #[error("{}", sentence(SdkCode::IdentityKeyChanged))]
    KeyChanged(Box<KeyChange>),
    #[error("{}", sentence(*.0))]
    Handshake(SdkCode),
    #[error("the relay refuses: {}", told(*.0))]
    Relay(Code),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Pins(#[from] PinError),
    #[error("the client was closed")]
    Stopped,
}

impl ClientClosed {
    /// The number of the protocol's code, or of the SDK's (0xE001 and up).
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::KeyChanged(_) => Some(SdkCode::IdentityKeyChanged.number()),
            Self::Handshake(code) => Some(code.number()),
            Self::Relay(code) => Some(code.to_wire()),
            Self::Control(_) | Self::Pins(_) | Self::Stopped => None,
        }
    }
}

/// A client that runs until it is closed or dropped.
#[derive(Debug)]
pub struct RelayClient {
    events: mpsc::Receiver<ClientEvent>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RelayClient {
    /// Connects, and reconnects until [`ClientEvent::Closed`]. Call it inside a Tokio runtime.
    pub fn connect(config: ClientConfig) -> Self {
        let (given, events) = mpsc::channel(EVENTS);
        let stop = CancellationToken::new();
        let driver = ClientDriver::new(config, given, stop.clone());
        Self { events, stop, task: tokio::spawn(driver.run()) }
    }

    /// The next event; `None` after [`ClientEvent::Closed`]. When 64 events are queued, the
    /// client's task blocks until one is read.
    pub async fn next(&mut self) -> Option<ClientEvent> {
        self.events.recv().await
    }

    /// The next session, after as many attempts as it takes; other events are skipped.
    pub async fn session(&mut self) -> Result<Session, ClientClosed> {
        loop {
            match self.next().await {
                Some(ClientEvent::Established { session, .. }) => return Ok(session),
                Some(ClientEvent::Closed(closed)) => return Err(closed),
                Some(_) => {}
                None => return Err(ClientClosed::Stopped),
            }
        }
    }

    /// Ends the session and disconnects, within 5 s.
    pub async fn close(mut self) {
        self.stop.cancel();
        if timeout(STOP_PATIENCE, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for RelayClient {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

const EVENTS: usize = 64;
const STOP_PATIENCE: Duration = Duration::from_secs(5);
