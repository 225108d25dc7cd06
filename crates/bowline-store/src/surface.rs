//! A surface attached to a session, as the store sees it.

use bowline_sbp::id::SessionId;
use bowline_sbp::surface::SurfaceContext;
use jiff::Timestamp;

use crate::session::Session;
use crate::turn::InstanceId;

/// A surface that wants to attach.
#[derive(Debug, Clone)]
pub struct Attach {
    pub session_id: SessionId,
    pub surface: SurfaceContext,
    /// The instance that holds the socket.
    pub owner: InstanceId,
    pub at: Timestamp,
}

/// An attachment: `epoch` is its right to act, until a newer one takes it (G6).
#[derive(Debug, Clone)]
pub struct Attached {
    pub epoch: u64,
    pub session: Session,
}

/// A device that a session knows by the name it gave itself (SBP-L4-05).
#[derive(Debug, Clone, PartialEq)]
pub struct KnownSurface {
    /// What it last said of itself.
    pub context: SurfaceContext,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
}
