//! Codes that wait for a device to be paired.

use bowline_sbp::access::{CredentialId, Scopes};
use bowline_sbp::id::UserId;
use jiff::Timestamp;
use uuid::Uuid;

/// A pairing code that waits, without the code itself, which is derived from the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairingOffer {
    pub id: Uuid,
    /// Whose credential the device becomes.
    pub user: UserId,
    pub scopes: Scopes,
    pub expires_at: Timestamp,
}

/// How often codes may be tried, by all devices at all replicas together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairingRate {
    /// So many at once,
    pub burst: u32,
    /// and then one each.
    pub every: std::time::Duration,
}

/// What became of an offer that a device wanted to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfferUsed {
    /// By this device. The credential that it had before, if any, is revoked.
    Paired { replaced: Option<CredentialId> },
    /// It was used, or has expired.
    Gone,
}

impl PairingRate {
    /// In milliseconds: how long one try counts, and how long as many as may be made at once.
    pub(crate) fn millis(self) -> (i64, i64) {
        let every = i64::try_from(self.every.as_millis()).unwrap_or(i64::MAX / 1000);
        (every, every.saturating_mul(i64::from(self.burst)))
    }
}
