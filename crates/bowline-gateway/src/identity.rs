//! Where the gateway's identity is: in a file beside the database, or in the store.
//!
//! Replicas sign with one identity, so theirs is a sealed secret in the store. The first replica of an
//! installation brings that of its data folder, if there is one: who pinned it before a move to PostgreSQL
//! still knows the gateway.

use bowline_sbp::gateway_key::GatewayIdentity;
use bowline_store::Store;
use zeroize::Zeroizing;

use crate::auth;
use crate::secrets::{BadSecrets, Sealing};

/// Its name in the store.
const NAME: &str = "gateway-identity";

/// What signs in the gateway's name.
#[derive(Debug)]
pub enum Signer {
    /// An identity of this process alone.
    Own(GatewayIdentity),
    /// That of the store, for all replicas. The seed of a data folder, if it has one, becomes the
    /// identity of a store that has none.
    Shared(Option<Zeroizing<[u8; 32]>>),
}

impl From<GatewayIdentity> for Signer {
    fn from(identity: GatewayIdentity) -> Self {
        Self::Own(identity)
    }
}

impl Signer {
    pub(crate) async fn identity(
        self,
        sealing: &Sealing,
        store: &dyn Store,
    ) -> Result<GatewayIdentity, BadSecrets> {
        let own = match self {
            Self::Own(identity) => return Ok(identity),
            Self::Shared(own) => own,
        };
        let fresh = own.clone().unwrap_or_else(|| Zeroizing::new(auth::random()));
        let stored = store.secret(NAME, sealing.seal(NAME, *fresh)).await?;
        // Everything in the store opened with this master secret before.
        let seed = sealing.open(NAME, &stored).map(Zeroizing::new).ok_or(BadSecrets::Unset)?;
        let identity = GatewayIdentity::from_seed(&seed);
        if own.is_some_and(|own| *own != *seed) {
            tracing::warn!(
                used = %identity.public().fingerprint(),
                "identity.key in the data folder is not used: the replicas' identity is in the database"
            );
        }
        Ok(identity)
    }
}
