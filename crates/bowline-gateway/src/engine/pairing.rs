//! Pairing: a device that knows a one-time code becomes a credential of a user.
//!
//! Somebody who may manage users has a code made and brings it to the device. How the device proves
//! that it knows the code is between it and whoever carries its bytes here; this asks only whether it
//! does. The device's key was proved before, too.
//!
//! Invariants
//! - One code pairs one device (G7). It is taken out before anything is stored, and comes back only if
//!   it is certain that nothing was.
//! - No text and no log has a code in it.

mod codes;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bowline_sbp::access::{CredentialId, Scopes};
use bowline_store::{Error, User, UserKey};
use jiff::Timestamp;

pub(crate) use self::codes::Code;
use self::codes::{Codes, MOST, WaitingOffer};
use super::identity::{BadScopes, Identity, NewKey, fits_in_name, scopes_for};
use super::{Deed, Engine};
use crate::auth::{self, hash_token};
use crate::clock;

/// The name of a device that says none.
const UNNAMED: &str = "device";

/// Makes of a code what a person brings to the device.
pub type PairingText = Arc<dyn Fn(&[u8; 16]) -> String + Send + Sync>;

/// The codes that wait, and how they are told.
pub(crate) struct Pairing {
    codes: Mutex<Codes>,
    text: Mutex<Option<PairingText>>,
}

impl fmt::Debug for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pairing(…)")
    }
}

impl Pairing {
    pub(super) fn new() -> Self {
        Self { codes: Mutex::new(Codes::new(Instant::now())), text: Mutex::default() }
    }

    /// The codes that wait, and until when.
    pub(crate) fn waiting(&self) -> Vec<(Code, Timestamp)> {
        locked(&self.codes).waiting(clock::now())
    }

    pub(crate) fn set_text(&self, text: Option<PairingText>) {
        *locked(&self.text) = text;
    }

    /// None: the gateway is not reachable through a relay.
    pub(crate) fn text(&self) -> Option<PairingText> {
        locked(&self.text).clone()
    }

    /// The first waiting code that the device knows, taken out.
    fn take(&self, knows: impl Fn(&Code) -> bool) -> Result<WaitingOffer, PairRefused> {
        let waiting = self.waiting();
        // Where none waits there is nothing to guess, and nobody uses up the tries of those to come.
        if waiting.is_empty() {
            return Err(PairRefused::BadCode);
        }
        if !locked(&self.codes).may_try(Instant::now()) {
            return Err(PairRefused::TooMany);
        }
        // Without the lock: it may take a while to find out.
        let known = waiting.iter().find(|(code, _)| knows(code));
        let (code, _) = known.ok_or(PairRefused::BadCode)?;
        // Another device may have been faster.
        locked(&self.codes).take(code, clock::now()).ok_or(PairRefused::BadCode)
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
        let code = auth::random();
        let added = locked(&self.pairing.codes).add(code, user.id, scopes, clock::now());
        let expires_at = added.map_err(|_| OfferRefused::TooMany)?;
        match by {
            Some(by) => self.audit.change(by, Deed::OfferPairing, user.id).await?,
            None => self.audit.gateway_did(Some(user.id), Deed::OfferPairing, user.id),
        }
        self.users.announce();
        Ok(Offer { code, expires_at })
    }

    /// Pairs the device of that key, if it knows a code that waits. If it was paired before, the new
    /// credential replaces the old one.
    pub(crate) async fn pair(
        self: &Arc<Self>,
        device: [u8; 32],
        name: &str,
        knows: impl Fn(&Code) -> bool,
    ) -> Result<(UserKey, User), PairRefused> {
        let taken = self.pairing.take(knows)?;
        self.users.announce();
        let (engine, name) = (Arc::clone(self), name_of(name));
        // In a task of its own: whoever waits may go, and the code is used up.
        let paired = tokio::spawn(async move { engine.add_device(device, name, taken).await });
        paired
            .await
            .unwrap_or_else(|_| Err(Error::Unavailable("pairing was cut off".into()).into()))
    }

    async fn add_device(
        &self,
        device: [u8; 32],
        name: String,
        taken: WaitingOffer,
    ) -> Result<(UserKey, User), PairRefused> {
        match self.store_device(device, name, &taken).await {
            Ok((key, user, replaced)) => {
                self.users.changed();
                let by = Identity::of_device_key(&key);
                if let Some(replaced) = replaced {
                    self.audit.change(&by, Deed::RevokeKey, replaced).await?;
                }
                let paired = format!("{} {}", key.id, key.user);
                self.audit.change(&by, Deed::PairDevice, paired).await?;
                Ok((key, user))
            }
            Err(refused) => {
                if !matches!(refused, PairRefused::Store(Error::Fatal(_))) {
                    locked(&self.pairing.codes).put_back(taken);
                    self.users.announce();
                }
                Err(refused)
            }
        }
    }

    async fn store_device(
        &self,
        device: [u8; 32],
        name: String,
        taken: &WaitingOffer,
    ) -> Result<(UserKey, User, Option<CredentialId>), PairRefused> {
        let users = self.store.users().await?;
        let user = users.into_iter().find(|user| user.id == taken.user);
        let user = user.filter(|user| user.disabled_at.is_none()).ok_or(PairRefused::BadCode)?;
        let nobody_has = NewKey::make()
            .ok_or_else(|| Error::Unavailable("the system gave no random bytes".into()))?;
        let key = UserKey {
            id: nobody_has.id,
            user: user.id,
            name,
            secret: hash_token(&nobody_has.secret),
            device: Some(device),
            scopes: taken.scopes,
            agents: Vec::new(),
            models: Vec::new(),
            limits: Default::default(),
            created_at: clock::now(),
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
        };
        let replaced = self.store.add_key(key.clone()).await?;
        Ok((key, user, replaced))
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
