//! The signing keys of roaming tokens. The newest signs; older ones verify until the last token
//! they signed has expired.

use std::sync::{PoisonError, RwLock};

use bowline_sbp::api::KeyRotated;
use bowline_sbp::roaming_token::{RoamingClaims, SigningKey, TokenError};
use bowline_store::{Result, Store, StoredSecret};
use jiff::Timestamp;

use crate::auth::random;
use crate::clock;
use crate::secrets::{SIGNING_KEY, Sealing};

/// The keys that verify tokens now, newest last. They are stored sealed.
#[derive(Debug)]
pub(crate) struct Keyring {
    keys: RwLock<Vec<SigningKey>>,
    sealing: Sealing,
}

impl Keyring {
    /// Loads the stored keys, and creates the first one if there is none.
    pub(crate) async fn load(sealing: Sealing, store: &dyn Store) -> Result<Self> {
        let keys = store.signing_keys(fresh(&sealing), clock::now()).await?;
        Ok(Self { keys: RwLock::new(opened(&sealing, keys)), sealing })
    }

    /// Creates a new key that signs from now on.
    pub(crate) async fn rotate(&self, store: &dyn Store) -> Result<KeyRotated> {
        let keys = store.add_signing_key(fresh(&self.sealing), clock::now()).await?;
        let keys = opened(&self.sealing, keys);
        let mut known: Vec<_> = keys.iter().map(|key| key.id.clone()).collect();
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        let key_id = known.pop().unwrap_or_default();
        Ok(KeyRotated { key_id, known_keys: known })
    }

    pub(super) fn sign(&self, claims: &RoamingClaims) -> Option<String> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).last().map(|key| claims.sign(key))
    }

    pub(super) fn read(&self, token: &str, now: Timestamp) -> Result<RoamingClaims, TokenError> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        RoamingClaims::read(token, &keys, now)
    }

    pub(super) fn read_expired(&self, token: &str) -> Result<RoamingClaims, TokenError> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        RoamingClaims::read_expired(token, &keys)
    }
}

fn fresh(sealing: &Sealing) -> Vec<u8> {
    sealing.seal(SIGNING_KEY, random())
}

/// Those that can be opened. One that cannot verifies nothing.
fn opened(sealing: &Sealing, stored: Vec<StoredSecret>) -> Vec<SigningKey> {
    let open = |key: StoredSecret| {
        let secret = sealing.open(SIGNING_KEY, &key.bytes)?;
        Some(SigningKey { id: key.name, secret })
    };
    stored.into_iter().filter_map(open).collect()
}
