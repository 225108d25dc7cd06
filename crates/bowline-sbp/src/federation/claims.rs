//! EdDSA JWTs signed by a gateway's key: the one place where they are written and read.
//!
//! Invariants
//! - Only EdDSA, only the expected `typ`, only the given key: a token's header decides nothing.
//! - Times are not checked here: the library would read the clock. Callers check them against `now`.

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::key_id::KeyId;
use crate::gateway_key::{GatewayIdentity, GatewayKey};

/// Longer tokens are refused before parsing.
const LONGEST_TOKEN: usize = 4096;

impl GatewayIdentity {
    fn jwt_key(&self) -> EncodingKey {
        // The PKCS #8 encoding of an Ed25519 seed is these sixteen bytes, followed by the seed.
        const PKCS8: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
        EncodingKey::from_ed_der(&[PKCS8, &self.seed()].concat())
    }
}

pub(super) fn sign(claims: &impl Serialize, typ: &str, identity: &GatewayIdentity) -> String {
    let header = Header {
        typ: Some(typ.to_owned()),
        kid: Some(KeyId::of(&identity.public()).to_string()),
        ..Header::new(Algorithm::EdDSA)
    };
    let token = jsonwebtoken::encode(&header, claims, &identity.jwt_key());
    token.expect("plain claims are always signed")
}

/// The claims without any check of the signature, if it is an EdDSA token of that type.
pub(super) fn peek<T: DeserializeOwned>(token: &str, typ: &str) -> Option<T> {
    of_type(token, typ)?;
    Some(jsonwebtoken::dangerous::insecure_decode::<T>(token).ok()?.claims)
}

/// The claims, if that key signed them.
pub(super) fn verified<T: DeserializeOwned>(token: &str, typ: &str, key: &GatewayKey) -> Option<T> {
    let header = of_type(token, typ)?;
    if header.kid != Some(KeyId::of(key).to_string()) {
        return None;
    }
    let mut validation = Validation::new(Algorithm::EdDSA);
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let key = DecodingKey::from_ed_der(key.as_bytes());
    Some(jsonwebtoken::decode::<T>(token, &key, &validation).ok()?.claims)
}

fn of_type(token: &str, typ: &str) -> Option<Header> {
    if token.len() > LONGEST_TOKEN || token.split('.').count() != 3 {
        return None;
    }
    let header = jsonwebtoken::decode_header(token).ok()?;
    // A critical extension that is not supported must be refused (RFC 7515).
    let fits = header.alg == Algorithm::EdDSA
        && header.typ.as_deref() == Some(typ)
        && header.crit.is_none();
    fits.then_some(header)
}
