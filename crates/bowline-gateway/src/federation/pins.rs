//! The keys of other gateways, in the store: all replicas know the same.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_federation::{Pins, PinsUnavailable};
use bowline_sbp::federation::{BaseUrl, GatewayId, Pin};
use bowline_sbp::gateway_key::GatewayKey;
use bowline_store::{Error, KeptPeer, Store};

/// The most gateways that are remembered and that nobody has named. Each is one that had a valid token, so it takes
/// long until there are so many; and none is forgotten for another one, or its next key would be anybody's.
const MOST_STRANGERS: usize = 10_000;

pub(super) struct StoredPins {
    store: Arc<dyn Store>,
    /// Those of the configuration.
    named: HashSet<GatewayId>,
    most: usize,
}

impl StoredPins {
    pub(super) fn new(store: Arc<dyn Store>, named: HashSet<GatewayId>) -> Self {
        Self { store, named, most: MOST_STRANGERS }
    }

    /// Whether one more may be remembered. Seldom asked: once for each gateway.
    async fn has_room(&self) -> Result<bool, PinsUnavailable> {
        let known = self.store.peers().await.map_err(unavailable)?;
        let strangers = known.iter().filter(|known| !self.named.contains(&known.id));
        Ok(strangers.count() < self.most)
    }
}

impl fmt::Debug for StoredPins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredPins")
    }
}

#[async_trait]
impl Pins for StoredPins {
    async fn pin(&self, gateway: &GatewayId) -> Result<Option<Pin>, PinsUnavailable> {
        let known = self.store.peer(gateway.clone()).await.map_err(unavailable)?;
        Ok(known.map(|known| known.pin))
    }

    async fn store(
        &self,
        gateway: &GatewayId,
        url: &BaseUrl,
        before: Option<Pin>,
        after: Pin,
    ) -> Result<bool, PinsUnavailable> {
        if before.is_none() && !self.named.contains(gateway) && !self.has_room().await? {
            tracing::warn!(%gateway, "the key of a gateway is not remembered: there are too many");
            return Err(PinsUnavailable::Full { most: self.most });
        }
        let peer = KeptPeer { id: gateway.clone(), url: url.clone(), pin: after, shown: None };
        self.store.pin_peer(peer, before).await.map_err(unavailable)
    }

    async fn refused(
        &self,
        gateway: &GatewayId,
        url: &BaseUrl,
        shown: &GatewayKey,
    ) -> Result<(), PinsUnavailable> {
        let Some(known) = self.store.peer(gateway.clone()).await.map_err(unavailable)? else {
            return Ok(());
        };
        // Anybody may say to be that gateway, and name an address of its own. What a person is asked to approve has to
        // come from where the gateway is.
        if known.url != *url && !self.named.contains(gateway) {
            tracing::warn!(%gateway, %url, "another address shows another key for a gateway that is known");
            return Ok(());
        }
        // Unless the pin was replaced meanwhile.
        let before = Some(known.pin);
        let noted = KeptPeer { shown: Some(*shown), ..known };
        self.store.pin_peer(noted, before).await.map(|_| ()).map_err(unavailable)
    }
}

fn unavailable(error: Error) -> PinsUnavailable {
    tracing::error!(%error, "the keys of other gateways cannot be read or written");
    PinsUnavailable::Store("the store failed".into())
}

#[cfg(test)]
mod tests {
    use bowline_sbp::gateway_key::GatewayIdentity;
    use bowline_store::sqlite::Sqlite;

    use super::*;

    #[tokio::test]
    async fn g11_the_number_of_gateways_that_are_remembered_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(Sqlite::open(folder.path()).unwrap());
        let named = HashSet::from(["named".parse().unwrap()]);
        let pins = StoredPins { store, named, most: 2 };
        let url = "https://gw.example".parse().unwrap();
        let key = GatewayIdentity::from_seed(&[1; 32]).public();
        let pin = async |id: &str, before, issued_at| {
            pins.store(&id.parse().unwrap(), &url, before, Pin { key, issued_at }).await
        };
        for id in ["a", "b", "named"] {
            assert_eq!(pin(id, None, 1).await, Ok(true), "{id}");
        }
        assert_eq!(pin("c", None, 1).await, Err(PinsUnavailable::Full { most: 2 }));
        assert_eq!(pins.pin(&"c".parse().unwrap()).await, Ok(None));
        let before = Some(Pin { key, issued_at: 1 });
        assert_eq!(pin("a", before, 2).await, Ok(true), "those that are known stay so");
    }

    #[tokio::test]
    async fn g20_a_changed_key_is_noted_only_from_where_the_gateway_is() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(Sqlite::open(folder.path()).unwrap());
        let named = HashSet::from(["named".parse().unwrap()]);
        let pins = StoredPins::new(Arc::clone(&store), named);
        let key = |n| GatewayIdentity::from_seed(&[n; 32]).public();
        let here: BaseUrl = "https://gw.example".parse().unwrap();
        let elsewhere: BaseUrl = "https://elsewhere.example".parse().unwrap();
        for (id, url, noted) in [
            ("a", &elsewhere, None),
            ("a", &here, Some(key(2))),
            // It is asked where the configuration says.
            ("named", &elsewhere, Some(key(2))),
        ] {
            let id: GatewayId = id.parse().unwrap();
            let pin = Pin { key: key(1), issued_at: 1 };
            let kept = KeptPeer { id: id.clone(), url: here.clone(), pin, shown: None };
            store.keep_peer(kept).await.unwrap();
            pins.refused(&id, url, &key(2)).await.unwrap();
            let kept = store.peer(id.clone()).await.unwrap().unwrap();
            assert_eq!((kept.shown, kept.pin), (noted, pin), "{id} at {url}");
        }
    }
}
