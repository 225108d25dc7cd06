//! A replica's lease, as the others see it.

use bowline_sbp::session::ReplicaId;
use jiff::Timestamp;

/// A replica that is not dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaLease {
    pub id: ReplicaId,
    /// When its lease ends, by the clock of the database; none: never.
    pub expires_at: Option<Timestamp>,
    /// Whether that time has passed, by the same clock.
    pub has_expired: bool,
}
