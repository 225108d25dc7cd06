//! The signing keys of roaming tokens. The newest signs; older ones verify until the last token
//! they signed has expired.

use std::sync::{PoisonError, RwLock};

use bowline_sbp::api::KeyRotated;
use bowline_sbp::roaming_token::{RoamingClaims, SigningKey, TokenError};
use bowline_store::{Result, Store};
use jiff::Timestamp;

use crate::clock;

/// The keys that verify tokens now, newest last.
#[derive(Debug)]
pub(crate) struct Keyring(RwLock<Vec<SigningKey>>);

impl Keyring {
    /// Loads the stored keys, and creates the first one if there is none.
    pub(crate) async fn load(store: &dyn Store) -> Result<Self> {
        let keys = store.signing_keys(fresh(), clock::now()).await?;
        Ok(Self(RwLock::new(keys)))
    }

    /// Creates a new key that signs from now on.
    pub(crate) async fn rotate(&self, store: &dyn Store) -> Result<KeyRotated> {
        let keys = store.add_signing_key(fresh(), clock::now()).await?;
        let mut known: Vec<_> = keys.iter().map(|key| key.id.clone()).collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
        let key_id = known.pop().unwrap_or_default();
        Ok(KeyRotated { key_id, known_keys: known })
    }

    pub(super) fn sign(&self, claims: &RoamingClaims) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).last().map(|key| claims.sign(key))
    }

    pub(super) fn read(&self, token: &str, now: Timestamp) -> Result<RoamingClaims, TokenError> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        RoamingClaims::read(token, &keys, now)
    }

    pub(super) fn read_expired(&self, token: &str) -> Result<RoamingClaims, TokenError> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        RoamingClaims::read_expired(token, &keys)
    }
}

fn fresh() -> [u8; 32] {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).expect("the operating system has randomness");
    secret
}
