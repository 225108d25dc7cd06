//! The identity of a gateway: an Ed25519 key, and the fingerprint that people compare.
//!
//! Apart from bundles, because a gateway is known by it wherever it signs. A public key is checked
//! when it is decoded: a key of small order verifies almost any signature, and a second encoding of a
//! key would have a second fingerprint. What is signed begins with what it is for, so that a signature
//! for one use is worth nothing for another.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

/// The public key of a gateway. Spelled as 43 characters of base64url.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct GatewayKey(VerifyingKey);

/// The text or the bytes are not an acceptable key of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not a canonical Ed25519 key of full order")]
pub struct UnfitGatewayKey;

impl GatewayKey {
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, UnfitGatewayKey> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| UnfitGatewayKey)?;
        let is_canonical = key.to_edwards().compress().to_bytes() == *bytes;
        if key.is_weak() || !is_canonical { Err(UnfitGatewayKey) } else { Ok(Self(key)) }
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    pub fn fingerprint(&self) -> KeyFingerprint {
        KeyFingerprint::of(self.as_bytes())
    }

    /// Whether it signed that message.
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        // Not `verify`: that accepts signatures around points of small order.
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

impl fmt::Display for GatewayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.as_bytes()))
    }
}

impl fmt::Debug for GatewayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GatewayKey({})", self.fingerprint())
    }
}

impl FromStr for GatewayKey {
    type Err = UnfitGatewayKey;

    fn from_str(text: &str) -> Result<Self, UnfitGatewayKey> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| UnfitGatewayKey)?;
        Self::from_bytes(&bytes.try_into().map_err(|_| UnfitGatewayKey)?)
    }
}

/// The secret key of a gateway. Wiped when dropped; its `Debug` output reveals nothing.
pub struct GatewayIdentity(SigningKey);

impl GatewayIdentity {
    /// The identity of 32 random bytes, which the caller stores and wipes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    pub fn public(&self) -> GatewayKey {
        GatewayKey(self.0.verifying_key())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }

    /// The secret itself, for a library that signs with it.
    pub(crate) fn seed(&self) -> [u8; 32] {
        self.0.to_bytes()
    }
}

impl fmt::Debug for GatewayIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayIdentity").field("public", &self.public()).finish_non_exhaustive()
    }
}

/// The SHA-256 of a key, for people to compare.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyFingerprint([u8; 32]);

impl KeyFingerprint {
    /// The fingerprint of any public key.
    pub fn of(key: &[u8; 32]) -> Self {
        Self(Sha256::digest(key).into())
    }
}

/// The text is no fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is SHA256 and 32 bytes in hexadecimal: SHA256:0A:1B:…")]
pub struct BadFingerprint;

impl fmt::Display for KeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SHA256")?;
        self.0.iter().try_for_each(|byte| write!(f, ":{byte:02X}"))
    }
}

impl fmt::Debug for KeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// People type it: case does not count, and `SHA256` and the colons may be left out.
impl FromStr for KeyFingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Self, BadFingerprint> {
        let text = text.trim().to_ascii_lowercase();
        let digits = text.strip_prefix("sha256").unwrap_or(&text).replace(':', "");
        // A content id has the same spelling: 64 lower-case digits.
        let hash: crate::cid::Cid = digits.parse().map_err(|_| BadFingerprint)?;
        Ok(Self(*hash.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> GatewayIdentity {
        GatewayIdentity::from_seed(&[7; 32])
    }

    #[test]
    fn sbp_l3_16_keys_and_fingerprints_are_read_as_they_are_written() {
        let key = identity().public();
        assert_eq!(key.to_string().len(), 43);
        assert_eq!(key.to_string().parse(), Ok(key));
        let shown = key.fingerprint().to_string();
        assert!(shown.starts_with("SHA256:") && shown.len() == 6 + 32 * 3, "{shown}");
        let bare = shown.replace(':', "").replace("SHA256", "").to_lowercase();
        for text in [shown.clone(), shown.to_lowercase(), bare.clone(), format!(" {shown}\n")] {
            assert_eq!(text.parse(), Ok(key.fingerprint()), "{text}");
        }
        for wrong in
            ["", "SHA256", &bare[1..], &format!("{bare}00"), &bare.replace(&bare[..1], "g")]
        {
            assert_eq!(wrong.parse::<KeyFingerprint>(), Err(BadFingerprint), "{wrong}");
        }
    }

    #[test]
    fn sbp_l3_16_weak_keys_and_second_spellings_are_unfit() {
        let mut one = [0; 32];
        one[0] = 1;
        let mut minus_one = [0xff; 32];
        (minus_one[0], minus_one[31]) = (0xec, 0x7f);
        for weak in [[0; 32], one, minus_one] {
            assert_eq!(GatewayKey::from_bytes(&weak), Err(UnfitGatewayKey), "{weak:02x?}");
            let text = URL_SAFE_NO_PAD.encode(weak);
            assert_eq!(text.parse::<GatewayKey>(), Err(UnfitGatewayKey));
        }
        // y = p + 3 .. p + 18, of which some are on the curve and of full order.
        let (mut spelled_twice, mut other) = (0, [0xff; 32]);
        other[31] = 0x7f;
        for y in 3..19u8 {
            other[0] = 0xed + y;
            spelled_twice += usize::from(VerifyingKey::from_bytes(&other).is_ok());
            assert_eq!(GatewayKey::from_bytes(&other), Err(UnfitGatewayKey), "y = p + {y}");
        }
        assert!(spelled_twice > 0, "the library takes some");
        let key = identity().public().to_string();
        for wrong in [&key[1..], &format!("{key}="), &format!("{key}A"), "?"] {
            assert_eq!(wrong.parse::<GatewayKey>(), Err(UnfitGatewayKey), "{wrong}");
        }
    }

    #[test]
    fn sbp_l3_16_a_signature_is_of_one_key_and_one_message() {
        let signature = identity().sign(b"this");
        assert!(identity().public().verifies(b"this", &signature));
        assert!(!identity().public().verifies(b"that", &signature));
        let other = GatewayIdentity::from_seed(&[8; 32]);
        assert!(!other.public().verifies(b"this", &signature));
        let mut changed = signature;
        changed[63] ^= 1;
        assert!(!identity().public().verifies(b"this", &changed));
    }

    #[test]
    fn sbp_l3_16_an_identity_shows_only_its_fingerprint() {
        let secret = GatewayIdentity::from_seed(&[0xA5; 32]);
        let shown = format!("{secret:?} {secret:#?}");
        assert!(shown.contains(&secret.public().fingerprint().to_string()));
        assert!(!shown.contains("165") && !shown.to_lowercase().contains("a5a5"), "{shown}");
    }
}
