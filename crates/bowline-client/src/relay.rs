//! The two endpoints of a relay: a daemon behind NAT and the client that reaches it, encrypted end
//! to end (SBRP).
//!
//! The protocol is in `bowline-sbrp`; here are the sockets, files and clocks around it.
//!
//! | module | what |
//! |---|---|
//! | [`RelayDaemon`], [`RelayClient`] | the two endpoints, each with one background task |
//! | [`Session`] | the handle of one sealed session, the same type at both endpoints |
//! | [`tunnel`] | streams that outlive sessions, for paired devices |
//! | [`DeviceBook`] | which devices are paired with a daemon |
//! | [`ControlPlane`] | the HTTP client of the control plane: registration and tokens |
//! | [`KnownDaemons`], [`load_or_create`] | the files: pins and pairings by name, a daemon's own identity |
//!
//! Invariants
//! - No message is lost silently: a session delivers everything in order, or ends with a reason.
//! - No token, key or message is in a log line, in `Debug` or in an error.

mod address;
mod blocking;
mod client;
mod control_plane;
mod daemon;
#[cfg(feature = "files")]
mod device_file;
mod devices;
#[cfg(feature = "files")]
mod identity_file;
#[cfg(feature = "files")]
mod known;
mod liveness;
mod pins;
mod random;
mod reasons;
mod session;
mod socket;
mod tokens;
pub mod tunnel;

use std::time::Duration;

use bowline_net::backoff::Backoff;

pub use client::{ClientClosed, ClientConfig, ClientEvent, RelayClient};
pub use control_plane::{ControlError, ControlPlane};
pub use daemon::{DaemonClosed, DaemonConfig, DaemonEvent, RelayDaemon};
#[cfg(feature = "files")]
pub use device_file::{CODE_LIFE, DeviceFile, DeviceFileError, ListedDevice};
pub use devices::{BookError, DeviceBook, MOST_PAIRED, PairError, PairedDevice, WaitingCode};
#[cfg(feature = "files")]
pub use identity_file::{IdentityError, load_or_create};
#[cfg(feature = "files")]
pub use known::{KnownDaemon, KnownDaemons, KnownPairing, NewPairing, PendingPairing};
pub use liveness::LivenessConfig;
pub use pins::{KnownError, MemoryPins, OtherDaemon, PinStore};
pub use reasons::{LossReason, SessionEnd};
pub use session::{SendError, Session};
pub use tokens::{PresenceTokens, SessionTokens};

/// The back-off before a reconnect. A person waits at the other end: after an outage, nobody waits for much
/// longer than this.
const RECONNECT: Backoff =
    Backoff { start: Duration::from_millis(500), cap: Duration::from_secs(10) };
/// A connection that lasted this long resets the back-off.
const STEADY: Duration = Duration::from_secs(10);
/// The WebSocket close code that says that a newer connection replaced this one.
const REPLACED: u16 = 4009;
/// The WebSocket close code of a relay that stops, or hands its daemons over to others.
const RESTART: u16 = 1012;
