//! Pairing: a device that knows a one-time code becomes a credential of a user.
//!
//! Somebody who may manage users has a code made and brings it to the device. How the device proves
//! that it knows the code is between it and whoever carries its bytes here; this asks only whether it
//! does. The device's key was proved before, too.
//!
//! What waits is in the store: a code that one replica made is known by all, and outlives a restart. The
//! code itself is not there. It is derived from the offer's id and the secret that all replicas share, so
//! that a stolen database pairs nothing.
//!
//! Invariants
//! - One code pairs one device (G7): it is used up in the transaction that stores the device's key.
//! - Codes are tried at a bounded rate, by all devices at all replicas together (G11).
//! - No text and no log has a code in it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_sbp::access::Scopes;
use bowline_store::{Error, OfferUsed, PairingOffer, PairingRate, User, UserKey};
use jiff::Timestamp;
use uuid::Uuid;

use super::identity::{BadScopes, Identity, NewKey, fits_in_name, scopes_for};
use super::{Deed, Engine};
use crate::auth::hash_token;
use crate::clock;

/// A code. Nobody guesses that many bytes while it waits.
pub(crate) type Code = [u8; 16];

/// The name of a device that says none.
const UNNAMED: &str = "device";
/// How many codes may wait at a time.
const MOST: u32 = 16;
/// How long a code waits.
const LIFETIME: Duration = Duration::from_secs(5 * 60);
const ATTEMPTS: PairingRate = PairingRate { burst: 10, every: Duration::from_secs(10) };

/// Makes of a code what a person brings to the device.
pub type PairingText = Arc<dyn Fn(&[u8; 16]) -> String + Send + Sync>;

/// How codes are told.
#[derive(Default)]
pub(crate) struct Pairing {
    text: Mutex<Option<PairingText>>,
}

impl fmt::Debug for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pairing(…)")
    }
}

impl Pairing {
    pub(crate) fn set_text(&self, text: Option<PairingText>) {
        *locked(&self.text) = text;
    }

    /// None: the gateway is not reachable through a relay.
    pub(crate) fn text(&self) -> Option<PairingText> {
        locked(&self.text).clone()
    }
}

/// A code that was just made.
#[derive(Clone, PartialEq, Eq)]
pub struct Offer {
    /// Whoever knows it may pair one device.
    pub code: [u8; 16],
    pub expires_at: Timestamp,
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// Why no code was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OfferRefused {
    #[error("there is no user {0}")]
    NoUser(String),
    #[error("the user {0} is disabled")]
    Disabled(String),
    #[error(transparent)]
    Scopes(#[from] BadScopes),
    #[error("{MOST} pairing codes wait already")]
    TooMany,
    #[error(transparent)]
    Store(#[from] Error),
}

/// Why a device was not paired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PairRefused {
    #[error("the pairing code is wrong, was used, or has expired")]
    BadCode,
    #[error("there were too many attempts to pair a device")]
    TooMany,
    #[error(transparent)]
    Store(#[from] Error),
}

impl Engine {
    /// Makes a code that pairs one device with a user; without a name, with the owner. `by`: who asked
    /// for it; none: the gateway itself.
    pub(crate) async fn offer_pairing(
        &self,
        by: Option<&Identity>,
        user: Option<&str>,
        scopes: Option<Scopes>,
    ) -> Result<Offer, OfferRefused> {
        let found = self.user_named(user).await?;
        let user = found.ok_or_else(|| OfferRefused::NoUser(user.unwrap_or_default().into()))?;
        let scopes = scopes_for(&user, scopes)?;
        if user.disabled_at.is_some() {
            return Err(OfferRefused::Disabled(user.name));
        }
        let now = clock::now();
        // The beginning of the id is the time: those that wait are listed in the order in which they were made.
        let (id, expires_at) = (Uuid::now_v7(), now + LIFETIME);
        let offer = PairingOffer { id, user: user.id, scopes, expires_at };
        if !self.store.offer_pairing(offer, MOST, now).await? {
            return Err(OfferRefused::TooMany);
        }
        match by {
            Some(by) => self.audit.change(by, Deed::OfferPairing, user.id).await?,
            None => self.audit.gateway_did(Some(user.id), Deed::OfferPairing, user.id),
        }
        self.users.announce();
        Ok(Offer { code: self.access.pairing_code(id), expires_at })
    }

    /// The codes that wait, and until when.
    pub(crate) async fn waiting_codes(&self) -> Result<Vec<(Code, Timestamp)>, Error> {
        let offers = self.store.pairing_offers(clock::now()).await?;
        let code = |offer: PairingOffer| (self.access.pairing_code(offer.id), offer.expires_at);
        Ok(offers.into_iter().map(code).collect())
    }

    /// Pairs the device of that key, if it knows a code that waits. If it was paired before, the new
    /// credential replaces the old one.
    pub(crate) async fn pair(
        self: &Arc<Self>,
        device: [u8; 32],
        name: &str,
        knows: impl Fn(&Code) -> bool + Send,
    ) -> Result<(UserKey, User), PairRefused> {
        let now = clock::now();
        let waiting = self.store.pairing_offers(now).await?;
        // Where none waits there is nothing to guess, and nobody uses up the tries of those to come.
        if waiting.is_empty() {
            return Err(PairRefused::BadCode);
        }
        if !self.store.may_try_pairing(ATTEMPTS, now).await? {
            return Err(PairRefused::TooMany);
        }
        let mut waiting = waiting.into_iter();
        let offer = waiting.find(|offer| knows(&self.access.pairing_code(offer.id)));
        let offer = offer.ok_or(PairRefused::BadCode)?;
        let (engine, name) = (Arc::clone(self), name_of(name));
        // In a task of its own: whoever waits may go, and the code is used up.
        let paired = tokio::spawn(async move { engine.add_device(device, name, offer).await });
        paired
            .await
            .unwrap_or_else(|_| Err(Error::Unavailable("pairing was cut off".into()).into()))
    }

    async fn add_device(
        &self,
        device: [u8; 32],
        name: String,
        offer: PairingOffer,
    ) -> Result<(UserKey, User), PairRefused> {
        let users = self.store.users().await?;
        let user = users.into_iter().find(|user| user.id == offer.user);
        let user = user.filter(|user| user.disabled_at.is_none()).ok_or(PairRefused::BadCode)?;
        let nobody_has = NewKey::make()
            .ok_or_else(|| Error::Unavailable("the system gave no random bytes".into()))?;
        let now = clock::now();
        let key = UserKey {
            id: nobody_has.id,
            user: user.id,
            name,
            secret: hash_token(&nobody_has.secret),
            device: Some(device),
            scopes: offer.scopes,
            agents: Vec::new(),
            models: Vec::new(),
            limits: Default::default(),
            created_at: now,
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
        };
        // Another device may have been faster.
        let used = self.store.use_offer(offer.id, key.clone(), now).await?;
        let OfferUsed::Paired { replaced } = used else { return Err(PairRefused::BadCode) };
        self.users.changed();
        let by = Identity::of_device_key(&key);
        if let Some(replaced) = replaced {
            self.audit.change(&by, Deed::RevokeKey, replaced).await?;
        }
        let paired = format!("{} {}", key.id, key.user);
        self.audit.change(&by, Deed::PairDevice, paired).await?;
        Ok((key, user))
    }
}

/// What a device calls itself, as far as that can be the name of a key.
fn name_of(said: &str) -> String {
    let name: String =
        said.chars().filter(|c| fits_in_name(*c)).take(super::LONGEST_NAME).collect();
    match name.trim() {
        "" => UNNAMED.to_owned(),
        name => name.to_owned(),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_called_what_it_says_without_what_could_confuse_a_list() {
        assert_eq!(name_of(" Ada's phone\n\u{1b}[31m "), "Adas phone31m");
        assert_eq!(name_of("Телефон 2"), "Телефон 2");
        assert_eq!(name_of("\u{202e}\n"), "device");
        assert_eq!(name_of(&"x".repeat(500)).len(), 64);
    }

    #[test]
    fn an_offer_shows_no_code() {
        let offer = Offer { code: [0xab; 16], expires_at: Timestamp::UNIX_EPOCH };
        let shown = format!("{offer:?}");
        assert!(!shown.contains("171") && !shown.contains("ab"), "{shown}");
    }
}
