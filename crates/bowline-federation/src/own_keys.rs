//! The key that signs in a gateway's name, and the statements of those before it.
//!
//! Apart, because a key may be replaced while the gateway runs: whoever signs asks here each time, and a key and its
//! statements are always read together.

use std::sync::{Arc, PoisonError, RwLock};

use bowline_sbp::federation::PreviousKey;
use bowline_sbp::gateway_key::{GatewayIdentity, GatewayKey};
use jiff::Timestamp;

/// A key, and the older ones that lead to it.
#[derive(Debug)]
pub struct KeySet {
    pub identity: Arc<GatewayIdentity>,
    pub previous: Vec<PreviousKey>,
}

/// The keys of this gateway, as they are now.
#[derive(Debug)]
pub struct OwnKeys {
    now: RwLock<Arc<KeySet>>,
    reading: tokio::sync::Mutex<()>,
}

impl OwnKeys {
    pub fn new(identity: Arc<GatewayIdentity>, previous: Vec<PreviousKey>) -> Self {
        let now = RwLock::new(Arc::new(KeySet { identity, previous }));
        Self { now, reading: tokio::sync::Mutex::default() }
    }

    pub fn current(&self) -> Arc<KeySet> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What signs now.
    pub fn identity(&self) -> Arc<GatewayIdentity> {
        Arc::clone(&self.current().identity)
    }

    /// The public key of what signs now.
    pub fn public(&self) -> GatewayKey {
        self.current().identity.public()
    }

    /// The keys whose signatures count: the present one first, and older ones until their time ends.
    pub fn accepted(&self, now: Timestamp) -> Vec<GatewayKey> {
        let keys = self.current();
        let older = keys.previous.iter().filter(|older| older.until > now.as_second());
        std::iter::once(keys.identity.public()).chain(older.map(|older| older.key)).collect()
    }

    /// Held by whoever reads the keys again until it has replaced them: what was read earlier replaces nothing newer.
    pub async fn reading(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.reading.lock().await
    }

    /// Signs with these from now on. Returns whether the key is another one.
    pub fn replace(&self, new: KeySet) -> bool {
        let mut keys = self.now.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = keys.identity.public() != new.identity.public();
        *keys = Arc::new(new);
        is_other
    }
}

impl From<GatewayIdentity> for OwnKeys {
    fn from(identity: GatewayIdentity) -> Self {
        Self::new(Arc::new(identity), Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbp_l6_01_a_key_that_is_replaced_counts_until_its_time_ends() {
        let [old, new] = [1, 2].map(|n| Arc::new(GatewayIdentity::from_seed(&[n; 32])));
        let at = |second| Timestamp::from_second(second).unwrap();
        let keys = OwnKeys::new(Arc::clone(&old), Vec::new());
        assert_eq!(keys.accepted(at(0)), [old.public()]);
        let gateway = "home".parse().unwrap();
        let previous = vec![PreviousKey::sign(&old, &gateway, &new.public(), at(100))];
        let set = || KeySet { identity: Arc::clone(&new), previous: previous.clone() };
        assert!(keys.replace(set()));
        assert_eq!(keys.public(), new.public());
        assert_eq!(keys.accepted(at(99)), [new.public(), old.public()]);
        assert_eq!(keys.accepted(at(100)), [new.public()]);
        assert!(!keys.replace(set()), "it is the same key");
    }
}
