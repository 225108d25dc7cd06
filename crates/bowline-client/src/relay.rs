//! The two ends of a relay: a daemon behind NAT and the client that reaches it, sealed end to end
//! (SBRP).
//!
//! The protocol is in `bowline-sbrp`; here are the sockets, files and clocks around it.
//!
//! | module | what |
//! |---|---|
//! | [`RelayDaemon`], [`RelayClient`] | the two ends, each with one background task |
//! | [`Session`] | what either end holds of one sealed session |
//! | [`tunnel`] | many TCP connections over one session |
//! | [`ControlPlane`] | who owns which daemon, and tokens |
//! | [`Pins`], [`load_or_create`] | the files: pinned keys, and a daemon's own |
//!
//! Invariants
//! - No message is lost silently: a session goes on whole, or ends and says why.
//! - No token, key or message is in a log line, in `Debug` or in an error.

mod address;
mod client;
mod control_plane;
mod daemon;
mod identity_file;
mod liveness;
mod pins;
mod random;
mod reasons;
mod session;
mod socket;
pub mod tunnel;

use std::time::Duration;

use bowline_net::backoff::Backoff;

pub use client::{ClientClosed, ClientConfig, ClientEvent, RelayClient};
pub use control_plane::{ControlError, ControlPlane};
pub use daemon::{DaemonClosed, DaemonConfig, DaemonEvent, RelayDaemon};
pub use identity_file::{IdentityError, load_or_create};
pub use liveness::LivenessConfig;
pub use pins::{PinError, Pins};
pub use reasons::{LossReason, SessionEnd};
pub use session::{SendError, Session};

/// How long to wait before connecting again.
const RECONNECT: Backoff =
    Backoff { start: Duration::from_millis(500), cap: Duration::from_secs(30) };
/// A connection that held this long was a good one: the next wait is short again.
const STEADY: Duration = Duration::from_secs(10);
/// The WebSocket close code that says that a newer connection took this one's place.
const REPLACED: u16 = 4009;
