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

use std::sync::Arc;
use std::time::Duration;

use bowline_sbrp::control::{Code, SdkCode};
use bowline_sbrp::handshake::{KeyChange, VerifiedIdentity};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::Fingerprint;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::control_plane::ControlError;
use super::liveness::LivenessConfig;
use super::pins::{KnownError, PinStore};
use super::reasons::{LossReason, sentence, told};
use super::session::Session;
use super::tokens::SessionTokens;
use driver::ClientDriver;

/// The daemon to connect to, by which name it is known, and where tokens come from.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Gives a token for each session.
    pub control: Arc<dyn SessionTokens>,
    /// The daemon, by its id at the control plane.
    pub daemon: DaemonId,
    /// What the person calls the daemon: its pin belongs to this name.
    pub name: String,
    /// Keeps the pin.
    pub known: Arc<dyn PinStore>,
    /// When a silent relay is taken for lost.
    pub liveness: LivenessConfig,
    vouched: Option<Fingerprint>,
}

impl ClientConfig {
    /// A daemon that is known to a person by this name, with the defaults.
    pub fn new(
        control: impl SessionTokens + 'static,
        daemon: DaemonId,
        name: impl Into<String>,
        known: impl PinStore + 'static,
    ) -> Self {
        Self {
            control: Arc::new(control),
            daemon,
            name: name.into(),
            known: Arc::new(known),
            liveness: LivenessConfig::default(),
            vouched: None,
        }
    }

    /// A person vouches for the key with this fingerprint, and for no other. It replaces a pin, after a
    /// handshake verified it (SBRP-CLIENT-02).
    #[must_use]
    pub fn vouched_for(mut self, fingerprint: Fingerprint) -> Self {
        self.vouched = Some(fingerprint);
        self
    }
}

/// Events of a client.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientEvent {
    /// The handshake is done.
    Established {
        /// The session.
        session: Session,
        /// The key that the daemon has proven.
        identity: Box<VerifiedIdentity>,
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
    NotPinned(KnownError),
    /// There is no session now; the next attempt begins after `retry_in`.
    Lost {
        /// Why it was lost.
        reason: LossReason,
        /// When the next attempt begins.
        retry_in: Duration,
    },
    /// The client stopped. This is the last event.
    Closed(ClientClosed),
}

/// Why a client stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientClosed {
    /// Show both fingerprints; [`ClientConfig::vouched_for`] accepts the new one.
    #[error("{}", sentence(SdkCode::IdentityKeyChanged))]
    KeyChanged(KeyChange),
    /// The handshake failed.
    #[error("{}", sentence(*.0))]
    Handshake(SdkCode),
    /// The relay refuses, and a new attempt would not help.
    #[error("the relay refuses: {}", told(*.0))]
    Relay(Code),
    /// No token could be had.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The pin could not be looked up, or stands for another daemon.
    #[error(transparent)]
    Known(#[from] KnownError),
    /// The client was closed.
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
            Self::Control(_) | Self::Known(_) | Self::Stopped => None,
        }
    }
}

/// A client that runs until it is closed or dropped.
#[derive(Debug)]
pub struct RelayClient {
    events: mpsc::Receiver<ClientEvent>,
    hurry: Arc<Notify>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RelayClient {
    /// Connects, and reconnects until [`ClientEvent::Closed`]. Call it inside a Tokio runtime.
    pub fn connect(config: ClientConfig) -> Self {
        let (given, events) = mpsc::channel(EVENTS);
        let (stop, hurry) = (CancellationToken::new(), Arc::<Notify>::default());
        let driver = ClientDriver::new(config, given, Arc::clone(&hurry), stop.clone());
        Self { events, hurry, stop, task: tokio::spawn(driver.run()) }
    }

    /// Notify it to have the next attempt made soon, because somebody waits for it.
    pub(super) fn hurry(&self) -> Arc<Notify> {
        Arc::clone(&self.hurry)
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
