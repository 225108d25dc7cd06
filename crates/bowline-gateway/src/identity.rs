//! Where the gateway's identity is: in a file beside the database, or in the store.
//!
//! Replicas sign with one identity, so theirs is a sealed secret in the store. The first replica of an
//! installation brings that of its data folder, if there is one: who pinned it before a move to PostgreSQL
//! still knows the gateway.

use std::sync::Arc;

use bowline_federation::OwnKeys;
use bowline_sbp::federation::PreviousKey;
use bowline_sbp::gateway_key::GatewayIdentity;
use bowline_store::Store;
use zeroize::Zeroizing;

use crate::secrets::{BadSecrets, IDENTITY, Sealing};
use crate::{auth, stored_identity};

/// What signs in the gateway's name.
#[derive(Debug)]
pub enum Signer {
    /// An identity of this process alone, and the ones before it, as long as these count.
    Own(Arc<GatewayIdentity>, Vec<PreviousKey>),
    /// That of the store, for all replicas. The seed of a data folder, if it has one, becomes the
    /// identity of a store that has none.
    Shared(Option<Zeroizing<[u8; 32]>>),
}

impl From<GatewayIdentity> for Signer {
    fn from(identity: GatewayIdentity) -> Self {
        Self::Own(Arc::new(identity), Vec::new())
    }
}

impl Signer {
    /// Whether it is in the store, where another process may replace it.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    pub(crate) async fn keys(
        self,
        sealing: &Sealing,
        store: &dyn Store,
    ) -> Result<Arc<OwnKeys>, BadSecrets> {
        let own = match self {
            Self::Own(identity, previous) => return Ok(Arc::new(OwnKeys::new(identity, previous))),
            Self::Shared(own) => own,
        };
        let fresh = own.clone().unwrap_or_else(|| Zeroizing::new(auth::random()));
        store.secret(IDENTITY, sealing.seal(IDENTITY, *fresh)).await?;
        let stored = stored_identity::read(sealing, store).await?.ok_or(BadSecrets::Unset)?;
        let used = stored.identity.public();
        if own.is_some_and(|own| GatewayIdentity::from_seed(&own).public() != used) {
            tracing::warn!(
                used = %used.fingerprint(),
                "identity.key in the data folder is not used: the replicas' identity is in the database"
            );
        }
        Ok(Arc::new(OwnKeys::new(stored.identity, stored.previous)))
    }
}
