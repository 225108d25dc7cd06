//! A JSON object with a signature over its other members.
//!
//! Manifests, announcements and answers of trackers are such objects, and reports of conformance. The signature covers the
//! canonical form (SBP-L3-04) of the object as it came, members that we do not know included, so
//! that a newer peer's additions neither break a signature nor can be added by others.
//!
//! Invariants
//! - Values are read from the canonical text that was verified, not from the text that came: two
//!   parsers cannot see two different objects.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_pyjson::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::gateway_key::{GatewayIdentity, GatewayKey};

const SIGNATURE: &str = "signature";
/// Nothing that is signed here nests deeper.
const DEPTH: usize = 16;

/// What is signed; part of every signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Manifest,
    Announcement,
    RegistryAnswer,
    ConformanceReport,
}

impl Purpose {
    fn prefix(self) -> &'static str {
        match self {
            Purpose::Manifest => "bowline-manifest-1:",
            Purpose::Announcement => "bowline-announce-1:",
            Purpose::RegistryAnswer => "bowline-registry-1:",
            Purpose::ConformanceReport => "bowline-conformance-1:",
        }
    }
}

/// The signature is missing, or it is of another key or another text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signature does not fit")]
pub struct BadSignature;

/// The object's JSON with its signature in it, and members in canonical order.
pub fn sign(object: &impl Serialize, purpose: Purpose, identity: &GatewayIdentity) -> String {
    let text = serde_json::to_string(object).expect("plain objects are always written");
    let mut value = Value::parse(&text).expect("what serde_json writes can be read");
    let signature = identity.sign(&signed_text(purpose, &value));
    if let Some(object) = value.as_object_mut() {
        object.insert(SIGNATURE, URL_SAFE_NO_PAD.encode(signature));
    }
    value.to_canonical()
}

/// An object as it came: nothing is known of who signed it.
#[derive(Debug, Clone)]
pub struct UnverifiedObject {
    value: Value<'static>,
}

impl UnverifiedObject {
    /// `None`: it is no JSON object, or larger than `most` bytes.
    pub fn parse(text: &[u8], most: usize) -> Option<Self> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= most)?;
        let value = Value::parse_within(text, DEPTH).ok()?;
        value.as_object()?;
        Some(Self { value: value.into_owned() })
    }

    /// The members, unverified.
    pub fn peek<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(&self.value.to_canonical()).ok()
    }

    pub fn verify(&self, purpose: Purpose, key: &GatewayKey) -> Result<(), BadSignature> {
        let signature = self.value.get(SIGNATURE).and_then(Value::as_str).ok_or(BadSignature)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| BadSignature)?;
        let signature = signature.try_into().map_err(|_| BadSignature)?;
        match key.verifies(&signed_text(purpose, &self.value), &signature) {
            true => Ok(()),
            false => Err(BadSignature),
        }
    }
}

fn signed_text(purpose: Purpose, value: &Value<'_>) -> Vec<u8> {
    let mut text = purpose.prefix().as_bytes().to_vec();
    value.write_canonical_without(SIGNATURE, |piece| text.extend_from_slice(piece));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn identity() -> GatewayIdentity {
        GatewayIdentity::from_seed(&[7; 32])
    }

    fn verify(text: &str, purpose: Purpose) -> Result<(), BadSignature> {
        let object = UnverifiedObject::parse(text.as_bytes(), 4096).ok_or(BadSignature)?;
        object.verify(purpose, &identity().public())
    }

    #[test]
    fn sbp_l6_01_spelling_and_order_of_an_object_do_not_count_and_its_values_do() {
        let text = sign(&json!({"b": 1, "a": "é"}), Purpose::Manifest, &identity());
        assert_eq!(verify(&text, Purpose::Manifest), Ok(()));
        let signature = text.split("\"signature\": \"").nth(1).unwrap().trim_end_matches("\"}");
        let again = format!(r#"{{"signature":"{signature}","b":1,"a":"é"}}"#);
        assert_eq!(verify(&again, Purpose::Manifest), Ok(()));
        for changed in [
            again.replace(":1", ":1.0"),
            again.replace(":1", ":2"),
            again.replace('é', "e"),
            again.replace("\"b\":1", "\"b\":1,\"c\":null"),
            again.replace("\"b\":1", "\"b\":1,\"b\":2"),
            again.replace("\"signature\"", "\"signatur\""),
            again.replace(signature, ""),
            again.replace(signature, &format!("{signature}=")),
            again.replace(signature, &signature[..80]),
        ] {
            assert_eq!(verify(&changed, Purpose::Manifest), Err(BadSignature), "{changed}");
        }
    }

    #[test]
    fn sbp_l6_03_a_signature_for_one_purpose_is_worth_nothing_for_another() {
        let all = [
            Purpose::Manifest,
            Purpose::Announcement,
            Purpose::RegistryAnswer,
            Purpose::ConformanceReport,
        ];
        for purpose in all {
            let text = sign(&json!({"a": 1}), purpose, &identity());
            for other in all {
                assert_eq!(verify(&text, other).is_ok(), purpose == other);
            }
        }
    }

    #[test]
    fn sbp_l6_06_what_is_no_object_or_too_large_or_too_deep_is_not_read() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(DEPTH), "]".repeat(DEPTH));
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(4096));
        for text in ["", "[]", "7", "null", "{", "\u{feff}{}", &deep, &large] {
            assert!(UnverifiedObject::parse(text.as_bytes(), 4096).is_none(), "{text}");
        }
        assert!(UnverifiedObject::parse(b"{\"\xff\":1}", 4096).is_none());
    }

    proptest! {
        #[test]
        fn sbp_l6_06_any_changed_byte_is_found(at in any::<prop::sample::Index>(), bit in 0..7u8) {
            let object = json!({"a": [1, 2.5, true, null], "b": {"c": "text"}});
            let text = sign(&object, Purpose::Announcement, &identity());
            let mut bytes = text.clone().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let changed = UnverifiedObject::parse(&bytes, 4096);
            if let Some(changed) = changed {
                // A space between tokens may become another white space: the same object.
                let same = changed.value.to_canonical() == text;
                let verified = changed.verify(Purpose::Announcement, &identity().public());
                prop_assert_eq!(verified.is_ok(), same);
            }
        }
    }
}
