//! Ed25519 keys as gateways use them: signed objects, signed bundles and EdDSA tokens.
//!
//! Written from the protocol's text and `docs/federation.md` alone, so that a mistake in a gateway is not
//! made here again. Public, because whoever tests a server needs a peer that signs.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// What an object is signed for: part of its signature.
pub const MANIFEST: &str = "bowline-manifest-1:";
pub const ANNOUNCEMENT: &str = "bowline-announce-1:";
pub const REGISTRY: &str = "bowline-registry-1:";
const BUNDLE: &str = "bowline-bundle-1:";

/// The DER encoding of an Ed25519 key is these twelve bytes, followed by the key (RFC 8410).
const SPKI: &[u8; 12] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// A gateway's secret key.
#[derive(Debug)]
pub struct Identity(SigningKey);

impl Identity {
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    pub fn key(&self) -> Key {
        Key(self.0.verifying_key())
    }

    /// `public_key` of a manifest.
    pub fn spki(&self) -> String {
        STANDARD.encode([&SPKI[..], self.0.verifying_key().as_bytes()].concat())
    }

    /// The object with a signature over its other members.
    pub fn signed(&self, purpose: &str, mut object: Value) -> Value {
        let signed =
            format!("{purpose}{}", canonical(&object.to_string(), &[]).unwrap_or_default());
        object["signature"] = json!(self.sign(signed.as_bytes()));
        object
    }

    /// The bundle with this gateway's signature and its content id, which is returned as well.
    pub fn sealed(&self, mut bundle: Value) -> (Value, String) {
        bundle["metadata"]["bowline"] = json!({});
        let signed = format!("{BUNDLE}{}", content_id(&bundle.to_string()).unwrap_or_default());
        let key = URL_SAFE_NO_PAD.encode(self.0.verifying_key().as_bytes());
        bundle["metadata"]["bowline"]["signature"] =
            json!({ "alg": "ed25519", "key": key, "value": self.sign(signed.as_bytes()) });
        let cid = content_id(&bundle.to_string()).unwrap_or_default();
        bundle["bundle_cid"] = json!(cid);
        (bundle, cid)
    }

    /// An EdDSA token of that type.
    pub fn token(&self, kind: &str, claims: &Value) -> String {
        let hash = Sha256::digest(self.0.verifying_key().as_bytes());
        let kid = URL_SAFE_NO_PAD.encode(&hash[..16]);
        let head = json!({ "alg": "EdDSA", "typ": kind, "kid": kid });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&head), part(claims));
        format!("{signed}.{}", self.sign(signed.as_bytes()))
    }

    fn sign(&self, text: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(self.0.sign(text).to_bytes())
    }
}

/// A gateway's public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(VerifyingKey);

impl Key {
    /// Reads `public_key` of a manifest: base64 of a DER `SubjectPublicKeyInfo`.
    pub fn from_spki(text: &str) -> Option<Self> {
        let der = STANDARD.decode(text).ok()?;
        let key = der.strip_prefix(SPKI)?.try_into().ok()?;
        VerifyingKey::from_bytes(key).ok().map(Self)
    }

    /// Whether it signed the object that this text is.
    pub fn signed(&self, purpose: &str, text: &str) -> bool {
        let Ok(object) = bowline_pyjson::Value::parse(text) else { return false };
        let signature = object.get("signature").and_then(bowline_pyjson::Value::as_str);
        let canonical = canonical(text, &["signature"]).unwrap_or_default();
        signature
            .is_some_and(|signature| self.verifies(&format!("{purpose}{canonical}"), signature))
    }

    /// The claims of a token, if it is an EdDSA token and this key signed it.
    pub fn claims(&self, token: &str) -> Option<Value> {
        let (head, claims) = peek(token)?;
        let (signed, signature) = token.rsplit_once('.')?;
        (head["alg"] == "EdDSA" && self.verifies(signed, signature)).then_some(claims)
    }

    fn verifies(&self, text: &str, signature: &str) -> bool {
        let signature = URL_SAFE_NO_PAD.decode(signature).ok();
        let signature: Option<[u8; 64]> = signature.and_then(|bytes| bytes.try_into().ok());
        signature.is_some_and(|signature| {
            self.0.verify_strict(text.as_bytes(), &Signature::from_bytes(&signature)).is_ok()
        })
    }
}

/// Head and claims of a token, unverified.
pub fn peek(token: &str) -> Option<(Value, Value)> {
    let mut parts = token.split('.');
    let mut read = || serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok();
    let (head, claims) = (read()?, read()?);
    (parts.count() == 1).then_some((head, claims))
}

/// The content id of a bundle: of what Python's `json.dumps(bundle, sort_keys=True)` writes without
/// `bundle_cid`.
pub fn content_id(bundle: &str) -> Option<String> {
    let hash = Sha256::digest(canonical(bundle, &["bundle_cid"])?.as_bytes());
    Some(hash.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// An object as Python writes it, without these members.
fn canonical(object: &str, without: &[&str]) -> Option<String> {
    let mut object = bowline_pyjson::Value::parse(object).ok()?;
    if let bowline_pyjson::Value::Object(members) = &mut object {
        without.iter().for_each(|name| drop(members.remove(name)));
    }
    Some(object.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    // The manifest of docs/federation.md: its key is made of 32 bytes of value 7.
    const SPKI_OF_SEVEN: &str = "MCowBQYDK2VwAyEA6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw=";

    #[test]
    fn sbp_l6_01_the_documented_manifest_verifies_and_any_change_is_seen() {
        let guide = include_str!("../../../../docs/federation.md");
        let manifest = guide.split("```json\n").nth(1).and_then(|rest| rest.split("```").next());
        let manifest = manifest.unwrap();
        let key = Key::from_spki(SPKI_OF_SEVEN).unwrap();
        assert_eq!(Identity::from_seed(&[7; 32]).key(), key);
        assert_eq!(Identity::from_seed(&[7; 32]).spki(), SPKI_OF_SEVEN);
        assert!(key.signed(MANIFEST, manifest));
        assert!(!key.signed(MANIFEST, &manifest.replace("At home", "At work")));
        assert!(!key.signed(REGISTRY, manifest), "a signature is for one purpose");
    }

    #[test]
    fn what_is_signed_here_is_read_here_and_by_no_other_key() {
        let (own, other) = (Identity::from_seed(&[1; 32]), Identity::from_seed(&[2; 32]));
        let object = own.signed(ANNOUNCEMENT, json!({ "b": 1.0, "a": "é" })).to_string();
        assert!(
            own.key().signed(ANNOUNCEMENT, &object) && !other.key().signed(ANNOUNCEMENT, &object)
        );
        let token = own.token("JWT", &json!({ "iss": "a" }));
        assert_eq!(own.key().claims(&token), Some(json!({ "iss": "a" })));
        assert_eq!(other.key().claims(&token), None);
        assert_eq!(peek(&format!("{token}.x")), None);
    }

    #[test]
    fn sbp_l3_04_a_sealed_bundle_has_the_content_id_of_its_text() {
        let (bundle, cid) = Identity::from_seed(&[1; 32]).sealed(json!({ "metadata": {} }));
        assert_eq!(content_id(&bundle.to_string()), Some(cid.clone()));
        assert_eq!(bundle["bundle_cid"], cid);
    }
}
