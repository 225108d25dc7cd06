//! A gateway's key as `SubjectPublicKeyInfo` (RFC 8410), which is how a manifest spells it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::gateway_key::GatewayKey;

/// The DER encoding of an Ed25519 key is these twelve bytes, followed by the key.
const PREFIX: &[u8; 12] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// The text is not an acceptable Ed25519 key in base64 of DER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not the base64 of a DER SubjectPublicKeyInfo with an Ed25519 key of full order")]
pub struct BadSpki;

impl GatewayKey {
    /// The 44 bytes of DER.
    pub fn to_spki_der(&self) -> [u8; 44] {
        let mut der = [0; 44];
        der[..12].copy_from_slice(PREFIX);
        der[12..].copy_from_slice(self.as_bytes());
        der
    }

    /// The inverse of [`GatewayKey::to_spki_der`]. Accepts one encoding only.
    pub fn from_spki_der(der: &[u8]) -> Result<Self, BadSpki> {
        let key = der.strip_prefix(PREFIX).ok_or(BadSpki)?.try_into().map_err(|_| BadSpki)?;
        Self::from_bytes(key).map_err(|_| BadSpki)
    }

    /// `public_key` of a manifest: base64 with padding of the DER.
    pub fn to_spki(&self) -> String {
        STANDARD.encode(self.to_spki_der())
    }

    pub fn from_spki(text: &str) -> Result<Self, BadSpki> {
        Self::from_spki_der(&STANDARD.decode(text).map_err(|_| BadSpki)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway_key::GatewayIdentity;

    // The example key of RFC 8410, section 10.1.
    const EXAMPLE: &str = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";

    #[test]
    fn sbp_l6_01_a_key_is_spelled_as_rfc_8410_spells_it() {
        let key = GatewayKey::from_spki(EXAMPLE).unwrap();
        assert_eq!(key.to_spki(), EXAMPLE);
        assert_eq!(&key.as_bytes()[..4], &[0x19, 0xbf, 0x44, 0x09]);
        let own = GatewayIdentity::from_seed(&[7; 32]).public();
        assert_eq!(GatewayKey::from_spki(&own.to_spki()), Ok(own));
    }

    #[test]
    fn sbp_l6_01_other_encodings_of_a_key_are_refused() {
        let der = GatewayKey::from_spki(EXAMPLE).unwrap().to_spki_der();
        let mut x25519 = der;
        x25519[8] = 0x6e;
        let mut weak = der;
        weak[12..].fill(0);
        for wrong in [&der[..43], &[&der[..], b"\0"].concat(), &der[12..], &x25519, &weak, b""] {
            assert_eq!(GatewayKey::from_spki_der(wrong), Err(BadSpki), "{wrong:02x?}");
        }
        for wrong in ["", "?", EXAMPLE.trim_end_matches('='), &EXAMPLE.replace('/', "_")[1..]] {
            assert_eq!(GatewayKey::from_spki(wrong), Err(BadSpki), "{wrong}");
        }
    }
}
