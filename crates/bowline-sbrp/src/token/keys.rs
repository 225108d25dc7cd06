//! The control plane's public keys, by key id.
//!
//! Weak keys are refused here, because token verification is not strict: with a small-order key,
//! anyone could forge a signature.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde::Deserialize;

use crate::identity::IdentityKey;

/// The keys that may have signed a token.
#[derive(Clone, Default)]
pub struct KeySet(HashMap<String, DecodingKey>);

/// Why a JWKS is refused. The caller keeps its current keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeySetError {
    /// The key set is not a JWKS document.
    #[error("the key set is not a JWKS document")]
    Malformed,
    /// The key set holds an Ed25519 key that is unusable or weak.
    #[error("the key set holds an Ed25519 key that is unusable or weak")]
    UnfitKey,
    /// Two keys of the set have the same id.
    #[error("two keys of the set have the same id")]
    DuplicateId,
    /// The key set holds no key that signs tokens.
    #[error("the key set holds no key that signs tokens")]
    Empty,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    alg: Option<String>,
    kid: Option<String>,
    x: Option<String>,
}

impl KeySet {
    /// Parses `/.well-known/jwks.json`. Keys for other purposes are skipped. A signing key that is
    /// weak or malformed invalidates the whole set, since its publisher cannot be relied on.
    pub fn from_jwks(json: &[u8]) -> Result<Self, KeySetError> {
        let document: Jwks = serde_json::from_slice(json).map_err(|_| KeySetError::Malformed)?;
        let mut keys = HashMap::new();
        for entry in document.keys {
            let ours = entry.kty == "OKP"
                && entry.crv.as_deref() == Some("Ed25519")
                && entry.alg.as_deref() == Some("EdDSA");
            let Some(kid) = entry.kid.filter(|kid| ours && !kid.is_empty()) else { continue };
            let key = public_key(entry.x.as_deref()).ok_or(KeySetError::UnfitKey)?;
            if keys.insert(kid, DecodingKey::from_ed_der(key.as_bytes())).is_some() {
                return Err(KeySetError::DuplicateId);
            }
        }
        if keys.is_empty() { Err(KeySetError::Empty) } else { Ok(Self(keys)) }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set has this key; if not, the set may be out of date.
    pub fn contains(&self, kid: &str) -> bool {
        self.0.contains_key(kid)
    }

    pub(super) fn key(&self, kid: &str) -> Option<&DecodingKey> {
        self.0.get(kid)
    }
}

fn public_key(x: Option<&str>) -> Option<IdentityKey> {
    let bytes: [u8; 32] = URL_SAFE_NO_PAD.decode(x?).ok()?.try_into().ok()?;
    IdentityKey::from_bytes(&bytes).ok()
}

impl std::fmt::Debug for KeySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
