//! A daemon: behind NAT, reachable through a relay that cannot decrypt its messages.
//!
//! [`RelayDaemon`] is a handle; one background task owns the connection and drives
//! [`bowline_sbrp::daemon::Daemon`], another renews the presence token.
//!
//! Invariants
//! - Every session has its own handle, keys and queues; none waits for another (SBRP-DAEMON-02).
//! - Sessions outlive the connection: they are resumed with the same keys, or closed
//!   (SBRP-DAEMON-05). They do not outlive the process: after a restart the relay ends them at
//!   once.
//! - A daemon replaced by another process with the same identity waits until that one disconnects.
//! - A daemon whose relay cannot be reached, or sends it away, is at another one as soon as the
//!   control plane names one.

mod device_keys;
mod driver;
mod presence;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentitySecret;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::control_plane::ControlError;
use super::devices::DeviceBook;
use super::liveness::LivenessConfig;
use super::reasons::LossReason;
use super::session::Session;
use super::tokens::PresenceTokens;
use driver::DaemonDriver;

/// The configuration of a daemon.
#[derive(Debug)]
#[non_exhaustive]
pub struct DaemonConfig {
    /// Gives the daemon its id and its tokens.
    pub control: Arc<dyn PresenceTokens>,
    /// The long-lived key that clients pin.
    pub identity: IdentitySecret,
    /// The display name of the daemon.
    pub name: Option<String>,
    /// Whether sessions can be resumed after the connection is lost; normally true.
    pub resumable: bool,
    /// The region in which it prefers a relay; by default the control plane decides.
    pub region: Option<String>,
    /// The session limit; further clients are refused without a reason that they could see. 96 by default:
    /// more than a program serves, so that it can tell the others why.
    pub most_sessions: usize,
    /// When a silent relay is taken for lost.
    pub liveness: LivenessConfig,
    /// The devices that the control plane is to give tokens for this daemon to; `None`: those of its
    /// owner only.
    pub devices: Option<Arc<dyn DeviceBook>>,
    /// How often a replaced daemon checks whether it may reconnect; 30 s by default.
    pub replaced_wait: Duration,
}

impl DaemonConfig {
    /// A daemon with this identity and the defaults.
    pub fn new(control: impl PresenceTokens + 'static, identity: IdentitySecret) -> Self {
        Self {
            control: Arc::new(control),
            identity,
            name: None,
            resumable: true,
            region: None,
            most_sessions: 96,
            liveness: LivenessConfig::default(),
            devices: None,
            replaced_wait: Duration::from_secs(30),
        }
    }
}

/// Events of a daemon.
#[derive(Debug)]
#[non_exhaustive]
pub enum DaemonEvent {
    /// The control plane registered the daemon with this id.
    Registered {
        /// The id.
        daemon: DaemonId,
    },
    /// The relay accepted the connection.
    Online {
        /// Host and port of the relay.
        relay: String,
    },
    /// A client completed the handshake.
    SessionOpened(Session),
    /// The connection is lost; the next attempt begins after `retry_in`. Sessions are paused.
    Lost {
        /// Why it was lost.
        reason: LossReason,
        /// When the next attempt begins.
        retry_in: Duration,
    },
    /// Another process with the same identity is connected, and the sessions ended. This daemon
    /// checks again after `look_in`, and reconnects when the other one has disconnected.
    Replaced {
        /// When it looks again.
        look_in: Duration,
    },
    /// The control plane does not know of the latest changes of the paired devices. It is told again.
    DevicesNotTold(ControlError),
    /// The daemon stopped. This is the last event.
    Closed(DaemonClosed),
}

/// Why a daemon stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonClosed {
    /// No token could be had.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The daemon was stopped.
    #[error("the daemon was stopped")]
    Stopped,
}

/// A daemon that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct RelayDaemon {
    events: mpsc::Receiver<DaemonEvent>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RelayDaemon {
    /// Registers, connects, and reconnects until [`DaemonEvent::Closed`]. Call it inside a Tokio
    /// runtime.
    pub fn start(config: DaemonConfig) -> Self {
        let (given, events) = mpsc::channel(EVENTS);
        let stop = CancellationToken::new();
        let driver = DaemonDriver::new(config, given, stop.clone());
        Self { events, stop, task: tokio::spawn(driver.run()) }
    }

    /// The next event; `None` after [`DaemonEvent::Closed`]. Up to 64 events are queued; when the
    /// queue is full, new sessions are refused and other events are dropped.
    pub async fn next(&mut self) -> Option<DaemonEvent> {
        self.events.recv().await
    }

    /// Closes every session with reason `shutdown` (SBRP-DAEMON-06) and disconnects, within 5 s.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if timeout(STOP_PATIENCE, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for RelayDaemon {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

const EVENTS: usize = 64;
const STOP_PATIENCE: Duration = Duration::from_secs(5);
