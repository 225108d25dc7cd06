//! Who may use a daemon: paired devices, and where they are remembered.
//!
//! A daemon asks its [`DeviceBook`] in every session. `bowline daemon run` keeps the book in a file
//! ([`crate::relay::DeviceFile`]); a gateway keeps it among the credentials of its users.

#[cfg(test)]
pub(super) mod test_book;

use std::fmt;

use async_trait::async_trait;
use bowline_sbrp::api::MOST_DEVICES;
use bowline_sbrp::identity::IdentityKey;
use bowline_sbrp::pairing::PairingCode;
use bowline_sbrp::peer::PairingClaim;
use tokio::sync::watch;

/// A device that may use the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairedDevice {
    /// Its id in the book.
    pub id: String,
    /// The key that it proves itself with.
    pub key: IdentityKey,
    /// What its owner calls it.
    pub name: String,
    /// The services that it may open; empty: all that the daemon offers.
    pub services: Vec<String>,
}

impl PairedDevice {
    /// Whether it may open this service.
    pub fn may_open(&self, service: &str) -> bool {
        self.services.is_empty() || self.services.iter().any(|one| one == service)
    }
}

/// The most codes that wait at once.
pub(super) const MOST_CODES: usize = 16;
/// The most devices of a daemon: with the codes, as many as the control plane takes.
pub const MOST_PAIRED: usize = MOST_DEVICES - MOST_CODES;

/// A code that no device has used yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingCode {
    /// The code.
    pub code: PairingCode,
    /// Seconds since 1970.
    pub expires_at: u64,
}

/// Why a device was not paired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// The pairing code is wrong, was used, or has expired.
    #[error("the pairing code is wrong, was used, or has expired")]
    BadCode,
    /// Too many devices try to pair; wait a minute.
    #[error("too many devices try to pair; wait a minute")]
    TooMany,
    /// As many devices are paired as there may be.
    #[error("{most} devices are paired, and there may be no more; revoke one that is not used")]
    Full {
        /// How many there may be.
        most: usize,
    },
    /// The book cannot be used.
    #[error(transparent)]
    Book(#[from] BookError),
}

/// The book of devices cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the list of paired devices cannot be used: {0}")]
pub struct BookError(pub String);

/// Which devices are paired. Whatever changes it makes itself known by [`DeviceBook::changed`], so
/// that a device that was revoked is cut off.
#[async_trait]
pub trait DeviceBook: Send + Sync + fmt::Debug {
    /// The device with this key, if it is paired now.
    async fn find(&self, key: &IdentityKey) -> Result<Option<PairedDevice>, BookError>;

    /// Pairs a device that knows a code. A code is used up by the first device that knows it.
    async fn pair(&self, claim: &PairingClaim) -> Result<PairedDevice, PairError>;

    /// All devices that are paired now.
    async fn all(&self) -> Result<Vec<PairedDevice>, BookError>;

    /// The codes that wait for a device.
    async fn codes(&self) -> Result<Vec<WaitingCode>, BookError>;

    /// Changes whenever the book does.
    fn changed(&self) -> watch::Receiver<u64>;
}
