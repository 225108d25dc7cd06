//! The signing keys of roaming tokens. The newest signs; older ones verify until the last token
//! they signed has expired.
//!
//! They are kept in memory. Another replica may add one: then the revision of the store changes
//! ([`Engine::follow_others`](crate::engine::Engine::follow_others)), and a token of a key that is not known
//! has the stored keys read at once.

use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use bowline_sbp::api::KeyRotated;
use bowline_sbp::error::Failure;
use bowline_sbp::roaming_token::{RoamingClaims, SigningKey, TokenError};
use bowline_store::{Result, Store, StoredSecret};

use crate::auth::random;
use crate::clock;
use crate::secrets::{SIGNING_KEY, Sealing};

/// How often unknown tokens may have the keys read again. Anybody can make one up.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The keys that verify tokens now, newest last. They are stored sealed.
#[derive(Debug)]
pub(crate) struct Keyring {
    keys: RwLock<Vec<SigningKey>>,
    /// When an unknown token had the keys read.
    read_at: Mutex<Option<Instant>>,
    sealing: Sealing,
}

impl Keyring {
    /// Loads the stored keys, and creates the first one if there is none.
    pub(crate) async fn load(sealing: Sealing, store: &dyn Store) -> Result<Self> {
        let keys = store.signing_keys(fresh(&sealing), clock::now()).await?;
        let keys = RwLock::new(opened(&sealing, keys));
        Ok(Self { keys, read_at: Mutex::default(), sealing })
    }

    /// Creates a new key that signs from now on.
    pub(crate) async fn rotate(&self, store: &dyn Store) -> Result<KeyRotated> {
        let keys = store.add_signing_key(fresh(&self.sealing), clock::now()).await?;
        let keys = opened(&self.sealing, keys);
        let mut known: Vec<_> = keys.iter().map(|key| key.id.clone()).collect();
        self.set(keys);
        let key_id = known.pop().unwrap_or_default();
        Ok(KeyRotated { key_id, known_keys: known })
    }

    /// Reads the stored keys again: another replica may have added one.
    pub(in crate::engine) async fn reload(&self, store: &dyn Store) -> Result<()> {
        let keys = store.signing_keys(fresh(&self.sealing), clock::now()).await?;
        self.set(opened(&self.sealing, keys));
        Ok(())
    }

    /// What the installation's secrets are sealed with.
    pub(in crate::engine) fn sealing(&self) -> &Sealing {
        &self.sealing
    }

    pub(super) fn sign(&self, claims: &RoamingClaims) -> Option<String> {
        self.keys().last().map(|key| claims.sign(key))
    }

    pub(super) async fn read_expired(
        &self,
        store: &dyn Store,
        token: &str,
    ) -> Result<RoamingClaims, Failure> {
        self.verify(store, |keys| RoamingClaims::read_expired(token, keys)).await
    }

    async fn verify(
        &self,
        store: &dyn Store,
        read: impl Fn(&[SigningKey]) -> Result<RoamingClaims, TokenError>,
    ) -> Result<RoamingClaims, Failure> {
        let claims = read(&self.keys());
        // Another replica may have made its key a moment ago.
        if claims == Err(TokenError::Invalid) && store.is_shared() && self.may_read_again() {
            self.reload(store).await?;
            return Ok(read(&self.keys())?);
        }
        Ok(claims?)
    }

    /// Once a second at most, whatever unknown tokens are shown.
    pub(in crate::engine) fn may_read_again(&self) -> bool {
        let mut read_at = self.read_at.lock().unwrap_or_else(PoisonError::into_inner);
        let may = read_at.is_none_or(|at| at.elapsed() >= READ_EVERY);
        if may {
            *read_at = Some(Instant::now());
        }
        may
    }

    fn keys(&self) -> RwLockReadGuard<'_, Vec<SigningKey>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, keys: Vec<SigningKey>) {
        let mut known = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        // What was read before the newest key was made, and comes late, does not replace it.
        let is_late = |newest: &SigningKey| keys.iter().all(|key| key.id != newest.id);
        if !known.last().is_some_and(is_late) {
            *known = keys;
        }
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
