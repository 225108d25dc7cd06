//! The identity of replicas: a sealed secret in the store, and beside it, in plain text, the statements of older keys,
//! which every manifest shows.
//!
//! It is replaced in one transaction, if it is still the one that signed the statement. Replicas that run look for it
//! once a second (`engine/replicas.rs`) and take the new one; until then they sign with the old one, which counts.

use std::sync::Arc;

use bowline_federation::{KeySet, OwnKeys};
use bowline_sbp::federation::{GatewayId, PreviousKey, rotation};
use bowline_sbp::gateway_key::{GatewayIdentity, GatewayKey};
use bowline_store::{AuditEntry, Store};
use jiff::Timestamp;
use zeroize::Zeroizing;

use crate::config::SecretsConfig;
use crate::secrets::{BadSecrets, IDENTITY, PREVIOUS, Sealing};
use crate::{auth, identity_file};

/// Why the identity in a store was not shown or replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoredIdentityError {
    #[error("this database has no identity yet")]
    NotMade,
    #[error("the identity was replaced by another command meanwhile")]
    Replaced,
    #[error(transparent)]
    Secrets(#[from] BadSecrets),
}

impl StoredIdentityError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NotMade => "a gateway makes it when it starts".into(),
            Self::Replaced => "look at it with `bowline identity show`".into(),
            Self::Secrets(error) => error.hint(),
        }
    }
}

impl From<bowline_store::Error> for StoredIdentityError {
    fn from(error: bowline_store::Error) -> Self {
        Self::Secrets(error.into())
    }
}

/// The public key in a store, and the older ones whose statements still count. The settings are those of the
/// replicas.
pub async fn load(
    settings: &SecretsConfig,
    store: &dyn Store,
    now: Timestamp,
) -> Result<(GatewayKey, Vec<PreviousKey>), StoredIdentityError> {
    let (_, KeySet { identity, mut previous }) = opened(settings, store).await?;
    previous.retain(|older| older.until > now.as_second());
    Ok((identity.public(), previous))
}

/// Replaces the identity in a store, as [`identity_file::rotate`] does with the one in a folder.
pub async fn rotate(
    settings: &SecretsConfig,
    store: &dyn Store,
    gateway: &GatewayId,
    until: Timestamp,
    now: Timestamp,
) -> Result<(GatewayKey, GatewayKey), StoredIdentityError> {
    let (sealing, KeySet { identity: old, previous: mut all }) = opened(settings, store).await?;
    let before = Stored::read(store).await?.ok_or(StoredIdentityError::NotMade)?;
    if open(&sealing, &before).is_none_or(|now| now.public() != old.public()) {
        return Err(StoredIdentityError::Replaced);
    }
    let seed = Zeroizing::new(auth::random());
    let new = GatewayIdentity::from_seed(&seed).public();
    all.retain(|older| older.until > now.as_second());
    all.push(PreviousKey::sign(&old, gateway, &new, until));
    let newest = all.len().saturating_sub(rotation::MOST_PREVIOUS);
    let statements = identity_file::statements_text(&all[newest..]).into_bytes();
    let after = vec![(IDENTITY, sealing.seal(IDENTITY, *seed)), (PREVIOUS, statements)];
    if !store.swap_secret(IDENTITY, before.sealed, after).await? {
        return Err(StoredIdentityError::Replaced);
    }
    let replaced = AuditEntry {
        at: now,
        user: None,
        credential: "local".into(),
        action: "identity.rotate".into(),
        object: format!("{} {}", old.public().fingerprint(), new.fingerprint()),
        result: "ok".into(),
        address: String::new(),
        times: 1,
        is_tally: false,
    };
    // The key is replaced: to say that it failed would have it replaced again.
    if let Err(error) = store.record(vec![replaced]).await {
        tracing::error!(%error, "the audit has no entry of a key that was replaced");
    }
    Ok((old.public(), new))
}

async fn opened(
    settings: &SecretsConfig,
    store: &dyn Store,
) -> Result<(Sealing, KeySet), StoredIdentityError> {
    // First: nothing is made in a database that no gateway has used.
    Stored::read(store).await?.ok_or(StoredIdentityError::NotMade)?;
    let sealing = Sealing::prepare(settings, store).await?;
    let keys = read(&sealing, store).await?.ok_or(StoredIdentityError::NotMade)?;
    Ok((sealing, keys))
}

/// The identity in the store, and the statements of older keys; none if there is none.
pub(crate) async fn read(
    sealing: &Sealing,
    store: &dyn Store,
) -> Result<Option<KeySet>, BadSecrets> {
    let Some(stored) = Stored::read(store).await? else { return Ok(None) };
    // Everything in the store opened with this master secret before.
    let identity = Arc::new(open(sealing, &stored).ok_or(BadSecrets::Unset)?);
    Ok(Some(KeySet { identity, previous: stored.previous }))
}

/// Takes the identity that is in the store now: another process may have replaced it.
pub(crate) async fn reload(
    keys: &OwnKeys,
    sealing: &Sealing,
    store: &dyn Store,
) -> bowline_store::Result<()> {
    let _reading = keys.reading().await;
    match read(sealing, store).await {
        Ok(Some(new)) => {
            let key = new.identity.public().fingerprint();
            if keys.replace(new) {
                tracing::info!(%key, "the gateway's key was replaced; it signs with the new one");
            }
        }
        Ok(None) => {}
        Err(BadSecrets::Store(error)) => return Err(error),
        Err(error) => tracing::warn!(%error, "cannot read the gateway's key again"),
    }
    Ok(())
}

/// As it is in the store.
struct Stored {
    sealed: Vec<u8>,
    previous: Vec<PreviousKey>,
}

impl Stored {
    async fn read(store: &dyn Store) -> bowline_store::Result<Option<Self>> {
        let (mut sealed, mut previous) = (None, Vec::new());
        for secret in store.all_secrets().await?.into_iter().filter(|one| !one.is_signing_key) {
            match secret.name.as_str() {
                IDENTITY => sealed = Some(secret.bytes),
                PREVIOUS => {
                    let text = std::str::from_utf8(&secret.bytes).ok();
                    let read = text.and_then(identity_file::statements);
                    previous = read.unwrap_or_else(|| {
                        tracing::warn!(
                            "the statements of older keys in the database are unreadable"
                        );
                        Vec::new()
                    });
                }
                _ => {}
            }
        }
        Ok(sealed.map(|sealed| Self { sealed, previous }))
    }
}

fn open(sealing: &Sealing, stored: &Stored) -> Option<GatewayIdentity> {
    let seed = sealing.open(IDENTITY, &stored.sealed).map(Zeroizing::new)?;
    Some(GatewayIdentity::from_seed(&seed))
}
