//! What is remembered of gateways: the key of each. The gateway's store keeps it; the crate knows the
//! trait alone.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bowline_sbp::federation::{BaseUrl, GatewayId, Pin};
use bowline_sbp::gateway_key::GatewayKey;

/// Why a pin is not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinsUnavailable {
    #[error("what is known of the peer cannot be read now: {0}")]
    Store(String),
    /// One more would be of a gateway that nobody has named.
    #[error(
        "{most} gateways are remembered here that nobody has named, and no more are; name this one in \
         `federation.peers`, or remove others (`bowline peers remove`)"
    )]
    Full { most: usize },
}

/// Keys of gateways, as they were shown first, rotated to, or approved.
#[async_trait]
pub trait Pins: fmt::Debug + Send + Sync {
    async fn pin(&self, gateway: &GatewayId) -> Result<Option<Pin>, PinsUnavailable>;

    /// Stores `after`, if the pin is still `before`. False: somebody else stored another one.
    async fn store(
        &self,
        gateway: &GatewayId,
        url: &BaseUrl,
        before: Option<Pin>,
        after: Pin,
    ) -> Result<bool, PinsUnavailable>;

    /// A gateway shows another key, which was refused. To be shown to a person, who may approve it.
    async fn refused(
        &self,
        gateway: &GatewayId,
        url: &BaseUrl,
        shown: &GatewayKey,
    ) -> Result<(), PinsUnavailable>;
}

/// Pins that live as long as the process: for tests, and for who asks once.
#[derive(Debug, Default)]
pub struct MemoryPins(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    pins: HashMap<GatewayId, Pin>,
    refused: HashMap<GatewayId, GatewayKey>,
}

impl MemoryPins {
    /// The key that a gateway shows in place of the pinned one.
    pub fn waiting(&self, gateway: &GatewayId) -> Option<GatewayKey> {
        self.lock().refused.get(gateway).copied()
    }

    /// A person says that this is the key of that gateway.
    pub fn approve(&self, gateway: &GatewayId, key: GatewayKey) {
        let mut remembered = self.lock();
        remembered.refused.remove(gateway);
        remembered.pins.insert(gateway.clone(), Pin { key, issued_at: 0 });
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Pins for MemoryPins {
    async fn pin(&self, gateway: &GatewayId) -> Result<Option<Pin>, PinsUnavailable> {
        Ok(self.lock().pins.get(gateway).copied())
    }

    async fn store(
        &self,
        gateway: &GatewayId,
        _: &BaseUrl,
        before: Option<Pin>,
        after: Pin,
    ) -> Result<bool, PinsUnavailable> {
        let mut remembered = self.lock();
        if remembered.pins.get(gateway).copied() != before {
            return Ok(false);
        }
        remembered.pins.insert(gateway.clone(), after);
        Ok(true)
    }

    async fn refused(
        &self,
        gateway: &GatewayId,
        _: &BaseUrl,
        shown: &GatewayKey,
    ) -> Result<(), PinsUnavailable> {
        self.lock().refused.insert(gateway.clone(), *shown);
        Ok(())
    }
}
