//! A daemon: behind NAT, reachable through a relay that cannot read what is said.
//!
//! [`RelayDaemon`] is a handle; one background task owns the connection and drives
//! [`bowline_sbrp::daemon::Daemon`], another keeps the presence token fresh.
//!
//! Invariants
//! - Every session has its own handle, keys and queues; none waits for another (SBRP-DAEMON-02).
//! - Sessions outlive the connection: they are resumed with the same keys, or closed
//!   (SBRP-DAEMON-05). They do not outlive the process: the next one ends them at once.
//! - A daemon that another process with the same identity replaced waits until that one is gone.

mod driver;
mod presence;
mod sessions;

use std::time::Duration;

use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentitySecret;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::control_plane::{ControlError, ControlPlane};
use super::liveness::LivenessConfig;
use super::reasons::LossReason;
use super::session::Session;
use driver::DaemonDriver;

/// What a daemon needs to know.
#[derive(Debug)]
pub struct DaemonConfig {
    pub control: ControlPlane,
    pub identity: IdentitySecret,
    /// What people call the daemon.
    pub name: Option<String>,
    /// Whether sessions outlive the connection; true unless there is a reason.
    pub resumable: bool,
    /// More clients are turned away; 64 by default.
    pub most_sessions: usize,
    pub liveness: LivenessConfig,
    /// How often a replaced daemon looks whether it may come back; 30 s by default.
    pub replaced_wait: Duration,
}

impl DaemonConfig {
    pub fn new(control: ControlPlane, identity: IdentitySecret) -> Self {
        Self {
            control,
            identity,
            name: None,
            resumable: true,
            most_sessions: 64,
            liveness: LivenessConfig::default(),
            replaced_wait: Duration::from_secs(30),
        }
    }
}

/// What happens to a daemon.
#[derive(Debug)]
pub enum DaemonEvent {
    /// The control plane knows the daemon by this id.
    Registered { daemon: DaemonId },
    /// The relay let the daemon in.
    Online { relay: String },
    /// A client is there, and the handshake is done.
    SessionOpened(Session),
    /// The connection is gone; the next attempt begins after `retry_in`. Sessions wait.
    Lost { reason: LossReason, retry_in: Duration },
    /// Another process with the same identity is connected, and the sessions are over. This one looks again after `look_in`,
    /// and comes back when the other is gone.
    Replaced { look_in: Duration },
    /// The daemon is over. Nothing follows.
    Closed(DaemonClosed),
}

/// Why a daemon does not come back by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DaemonClosed {
    #[error(transparent)]
    Control(#[from] ControlError),
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
    /// Registers and connects, and goes on until [`DaemonEvent::Closed`]. Call it inside a Tokio
    /// runtime.
    pub fn start(config: DaemonConfig) -> Self {
        let (given, events) = mpsc::channel(EVENTS);
        let stop = CancellationToken::new();
        let driver = DaemonDriver::new(config, given, stop.clone());
        Self { events, stop, task: tokio::spawn(driver.run()) }
    }

    /// The next event; `None` after [`DaemonEvent::Closed`]. Events that are not taken wait in a
    /// queue of 64; when it is full, new sessions are refused and other news are left out.
    pub async fn next(&mut self) -> Option<DaemonEvent> {
        self.events.recv().await
    }

    /// Closes every session as `shutdown` (SBRP-DAEMON-06) and leaves, within 5 s.
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
