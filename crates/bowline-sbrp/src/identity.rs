//! A daemon's long-term identity: an Ed25519 key and the fingerprint that people compare.
//!
//! Separate from the handshake, because keys also come from files and from the control plane. A
//! public key is checked when it is decoded: a small-order key verifies almost any signature, and a
//! second encoding of a key would defeat a pin (SBRP-CRYPTO-03).

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

/// A public key that is fit to identify a daemon.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IdentityKey(VerifyingKey);

/// The bytes are not an acceptable identity key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the identity key is not a canonical Ed25519 key of full order")]
pub struct UnfitKey;

impl IdentityKey {
    /// Checks the bytes: canonical, and of full order.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, UnfitKey> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| UnfitKey)?;
        let canonical = key.to_edwards().compress().to_bytes() == *bytes;
        if key.is_weak() || !canonical { Err(UnfitKey) } else { Ok(Self(key)) }
    }

    /// The key as it is on the wire.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// The hash that people compare.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.as_bytes())
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

impl fmt::Debug for IdentityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdentityKey({})", self.fingerprint())
    }
}

/// The secret key. Wiped when dropped; its `Debug` output reveals nothing.
pub struct IdentitySecret(SigningKey);

impl IdentitySecret {
    /// Derives the identity from 32 random bytes, which the caller stores and wipes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The public key.
    pub fn public(&self) -> IdentityKey {
        IdentityKey(self.0.verifying_key())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl fmt::Debug for IdentitySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentitySecret").field("public", &self.public()).finish_non_exhaustive()
    }
}

/// A key's hash, for people to compare.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Accepts any bytes offered as a key, valid or not: the fingerprint of a refused key is shown
    /// too.
    pub fn of(key: &[u8; 32]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// From a hash that was made elsewhere.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Text that is no fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is written like SHA256:0A:1B:…, with 32 bytes")]
pub struct BadFingerprint;

impl FromStr for Fingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Self, BadFingerprint> {
        let text = text.trim().to_ascii_uppercase();
        let bytes = text.strip_prefix("SHA256:").ok_or(BadFingerprint)?.split(':');
        let byte = |hex: &str| match hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            true => u8::from_str_radix(hex, 16).map_err(|_| BadFingerprint),
            false => Err(BadFingerprint),
        };
        let bytes = bytes.map(byte).collect::<Result<Vec<_>, _>>()?;
        bytes.try_into().map(Self).map_err(|_| BadFingerprint)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SHA256")?;
        self.0.iter().try_for_each(|byte| write!(f, ":{byte:02X}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::Verifier as _;

    use super::*;
    use crate::vectors;

    #[test]
    fn sbrp_client_02_keys_and_fingerprints_are_the_vectors() {
        for row in vectors::rows("handshake", 6) {
            let secret = IdentitySecret::from_seed(&vectors::key(&row, "identity_seed_hex"));
            let key = IdentityKey::from_bytes(&vectors::key(&row, "identity_public_hex")).unwrap();
            assert_eq!(secret.public(), key);
            assert_eq!(key.fingerprint().to_string(), vectors::text(&row, "identity_fingerprint"));
            let lower = format!(" {}\n", key.fingerprint()).to_lowercase();
            assert_eq!(lower.parse(), Ok(key.fingerprint()));
            assert_eq!(lower.trim()[..90].parse::<Fingerprint>(), Err(BadFingerprint));
        }
    }

    /// The eight points of small order, in every encoding that a lenient decoder accepts.
    #[test]
    fn sbrp_crypto_03_keys_of_small_order_are_unfit() {
        let p_minus = |low: u8| {
            let mut bytes = [0xff; 32];
            (bytes[0], bytes[31]) = (low, 0x7f);
            bytes
        };
        let mut one = [0; 32];
        one[0] = 1;
        let eight = vectors::unhex(
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05\
             c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        );
        let (first, second) = eight.split_at(32);
        let order_eight = [first.try_into().unwrap(), second.try_into().unwrap()];
        // y = 0, 1, -1, p, p + 1 and the two of order eight, each with both signs of x.
        let points = [[0; 32], one, p_minus(0xec), p_minus(0xed), p_minus(0xee)];
        for mut key in points.into_iter().chain(order_eight) {
            for sign in [0x00, 0x80] {
                key[31] ^= sign;
                assert_eq!(IdentityKey::from_bytes(&key), Err(UnfitKey), "{key:02x?}");
            }
        }
    }

    #[test]
    fn sbrp_crypto_03_a_second_spelling_of_a_good_key_is_unfit() {
        // y = p + 3 .. p + 18 are non-canonical encodings of y = 3 .. 18; some are on the curve,
        // and those are not of small order.
        let mut spelled_twice = 0;
        for y in 3..19u8 {
            let mut canonical = [0; 32];
            canonical[0] = y;
            let mut other = [0xff; 32];
            (other[0], other[31]) = (0xed + y, 0x7f);
            if IdentityKey::from_bytes(&canonical).is_ok() {
                spelled_twice += 1;
                assert!(VerifyingKey::from_bytes(&other).is_ok(), "the library takes it");
            }
            assert_eq!(IdentityKey::from_bytes(&other), Err(UnfitKey), "y = p + {y}");
        }
        assert!(spelled_twice > 0);
    }

    #[test]
    fn sbrp_crypto_03_a_signature_around_a_point_of_small_order_does_not_verify() {
        // R is the neutral point and S = H(R, A, M) * a: the key's owner can compute it, and
        // lenient verification accepts it. The value was computed independently of this code.
        let mut signature = [0; 64];
        signature[0] = 1;
        let s = vectors::unhex("f65d2a23bc55f32b0adabb93605744dedc7ea43632d760991602f7ac188d9605");
        signature[32..].copy_from_slice(&s);
        let key = IdentitySecret::from_seed(&[1; 32]).public();
        let message = [9; 32];
        assert!(key.0.verify(&message, &Signature::from_bytes(&signature)).is_ok(), "laxly good");
        assert!(!key.verifies(&message, &signature));
    }

    #[test]
    fn sbrp_crypto_10_a_secret_shows_only_its_fingerprint() {
        let secret = IdentitySecret::from_seed(&[0xA5; 32]);
        let shown = format!("{secret:?} {secret:#?}");
        assert!(shown.contains(&secret.public().fingerprint().to_string()));
        assert!(!shown.contains("165") && !shown.to_lowercase().contains("a5a5"), "{shown}");
    }
}
