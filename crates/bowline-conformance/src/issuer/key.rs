//! A key of the issuer, and the tokens that it signs.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use uuid::Uuid;

/// A signing key.
pub(crate) struct Key {
    pub(crate) kid: String,
    secret: SigningKey,
}

impl Key {
    pub(super) fn fresh() -> std::io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| std::io::Error::other(error.to_string()))?;
        let kid = format!("conformance-{}", Uuid::new_v4().simple());
        Ok(Self { kid, secret: SigningKey::from_bytes(&seed) })
    }

    /// The public half as 32 bytes.
    pub(crate) fn public(&self) -> [u8; 32] {
        self.secret.verifying_key().to_bytes()
    }

    /// The public half, as an entry of the key set.
    pub(super) fn jwk(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.public());
        json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.kid, "x": x })
    }

    /// The header of a good token of this key.
    pub(crate) fn header(&self) -> Value {
        json!({ "typ": "sbrp-relay+jwt", "alg": "EdDSA", "kid": self.kid })
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.signed(&self.header(), claims)
    }

    /// Any header and claims, signed with this key.
    pub(crate) fn signed(&self, header: &Value, claims: &Value) -> String {
        joined(header, claims, |text| self.secret.sign(text).to_bytes().to_vec())
    }
}

/// A token of these parts.
pub(crate) fn joined(
    header: &Value,
    claims: &Value,
    sign: impl FnOnce(&[u8]) -> Vec<u8>,
) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("kid", &self.kid).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_three_parts_and_a_signature_that_fits() {
        let key = Key::fresh().unwrap();
        let token = key.token(&json!({ "did": "d" }));
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let signature = ed25519_dalek::Signature::from_slice(&signature).unwrap();
        assert!(key.secret.verifying_key().verify_strict(signed.as_bytes(), &signature).is_ok());
        assert_eq!(token.split('.').count(), 3);
    }

    #[test]
    fn a_key_shows_no_secret() {
        let key = Key::fresh().unwrap();
        let shown = format!("{key:?}");
        assert_eq!(shown, format!("Key {{ kid: {:?}, .. }}", key.kid));
    }
}
