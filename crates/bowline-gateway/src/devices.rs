//! Paired devices, for the program that the gateway runs in: it carries their bytes, asks here who they
//! are, and hands their streams to the gateway's [`Entrance`](bowline_net::Entrance).
//!
//! The gateway knows no relay. What it knows of a device is its public key, and that whoever brings a
//! stream has checked that the device has the key.

use std::sync::Arc;

use bowline_net::DeviceEntry;
use bowline_sbp::access::{CredentialId, Scopes};
use bowline_store::{Error, User, UserKey};
use jiff::Timestamp;
use tokio::sync::watch;

use crate::clock;
use crate::engine::Engine;
pub use crate::engine::{BadScopes, Offer, OfferRefused, PairRefused, PairingText};

/// The paired devices of a gateway.
#[derive(Debug, Clone)]
pub struct Devices {
    engine: Arc<Engine>,
}

/// A device that is paired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The id of its credential.
    pub id: CredentialId,
    pub name: String,
    /// Its public key.
    pub key: [u8; 32],
    /// The name of its user.
    pub user: String,
}

impl Device {
    /// How a stream of it enters. `programs`: the stream is from a local port of the device that any
    /// program there can use.
    pub fn entry(&self, programs: bool) -> DeviceEntry {
        DeviceEntry { id: self.id.as_str().into(), programs }
    }
}

impl Devices {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Makes a code that pairs one device with a user; without a name, with the owner. Without scopes
    /// the device gets all but `admin`.
    pub async fn offer(
        &self,
        user: Option<&str>,
        scopes: Option<Scopes>,
    ) -> Result<Offer, OfferRefused> {
        self.engine.offer_pairing(None, user, scopes).await
    }

    /// Pairs the device of that key, if it knows a code that waits: `knows` is asked for each of them.
    /// The code is used up. If the device was paired before, that ends.
    pub async fn pair(
        &self,
        key: [u8; 32],
        name: &str,
        knows: impl Fn(&[u8; 16]) -> bool + Send,
    ) -> Result<Device, PairRefused> {
        let (key, user) = self.engine.pair(key, name, knows).await?;
        device_of(key, &user).ok_or(PairRefused::BadCode)
    }

    /// The device of that key, if it may come in now.
    pub async fn find(&self, key: &[u8; 32]) -> Result<Option<Device>, Error> {
        let found = self.engine.store.key_of_device(*key).await?;
        let now = clock::now();
        let found = found.filter(|(key, user)| key.is_valid(now) && user.disabled_at.is_none());
        Ok(found.and_then(|(key, user)| device_of(key, &user)))
    }

    /// All devices that may come in now.
    pub async fn all(&self) -> Result<Vec<Device>, Error> {
        let (keys, users) = (self.engine.store.keys(None).await?, self.engine.store.users().await?);
        let now = clock::now();
        let device = |key: UserKey| {
            let user = users.iter().find(|user| user.id == key.user)?;
            let is_valid = key.is_valid(now) && user.disabled_at.is_none();
            is_valid.then(|| device_of(key, user)).flatten()
        };
        Ok(keys.into_iter().filter_map(device).collect())
    }

    /// Tells when keys, users or codes that wait have changed. That a code has expired is not told.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.engine.users.watch()
    }

    /// The codes that wait, and until when.
    pub async fn pending(&self) -> Result<Vec<([u8; 16], Timestamp)>, Error> {
        self.engine.waiting_codes().await
    }

    /// How a code is told to people. To be set while the gateway can be reached through a relay, else no
    /// codes are made over HTTP.
    pub fn set_pairing_text(&self, text: Option<PairingText>) {
        self.engine.pairing.set_text(text);
    }
}

fn device_of(key: UserKey, user: &User) -> Option<Device> {
    let UserKey { id, name, device, .. } = key;
    Some(Device { id, name, key: device?, user: user.name.clone() })
}
