//! A surface attached to a session, as the store sees it.

use bowline_sbp::id::SessionId;
use bowline_sbp::surface::SurfaceContext;
use jiff::Timestamp;

use crate::session::{Session, TokenHash};
use crate::turn::InstanceId;

/// A surface that wants to attach.
#[derive(Debug, Clone)]
pub struct Attach {
    pub session_id: SessionId,
    pub surface: SurfaceContext,
    /// The instance that holds the socket.
    pub owner: InstanceId,
    /// The device's own token, if it comes with one: it must still be good when the surface is
    /// attached, not only when it knocked.
    pub device: Option<TokenHash>,
    pub at: Timestamp,
}

/// An attachment: `epoch` is its right to act, until a newer one takes it (G6).
#[derive(Debug, Clone)]
pub struct Attached {
    pub epoch: u64,
    pub session: Session,
    /// When the device's own token ends, and the attachment with it.
    pub until: Option<Timestamp>,
}

/// A device that a session knows by the name it gave itself (SBP-L4-05).
#[derive(Debug, Clone, PartialEq)]
pub struct KnownSurface {
    /// What it last said of itself.
    pub context: SurfaceContext,
    pub first_seen: Timestamp,
    /// None if it has a token and never used it.
    pub last_seen: Option<Timestamp>,
    /// Until when its own token is good, if it has one.
    pub token_expires_at: Option<Timestamp>,
}

/// A token for one device of a session. It takes the place of the device's earlier one.
#[derive(Debug, Clone)]
pub struct NewDeviceToken {
    pub session_id: SessionId,
    pub surface_id: String,
    pub hash: TokenHash,
    pub at: Timestamp,
    pub expires_at: Timestamp,
}

/// What became of a device that was to be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// The session knew no such device.
    Unknown,
    Gone,
    /// It was attached with a token of its own: that attachment has ended, and this is the epoch
    /// after it.
    CutOff {
        epoch: u64,
    },
}
