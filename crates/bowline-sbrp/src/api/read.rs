//! Validation of untrusted request bodies.
//!
//! Separate from the wire types: those define the format, this module defines what is accepted.
//! Pure, so that a fuzzer can run it on arbitrary bytes.
//!
//! Invariants
//! - A [`Registration`] holds a valid identity key (SBRP-CRYPTO-03).
//! - No error text contains anything from a body.

use base64::Engine as _;
use base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{DaemonProcess, OpenSession, Register, Rename, RenewPresence};
use crate::identity::IdentityKey;

/// The longest accepted daemon id, in bytes.
pub const LONGEST_ID: usize = 128;
/// The longest accepted display name of a daemon, in characters.
pub const LONGEST_NAME: usize = 64;
/// The most devices that a daemon may have at the control plane.
pub const MOST_DEVICES: usize = 256;
/// The most relays that a daemon may say it cannot reach.
pub const MOST_UNREACHABLE: usize = 16;
/// The longest accepted URL of a relay, in bytes.
const LONGEST_URL: usize = 2048;
/// The longest accepted API key, in bytes.
const LONGEST_KEY: usize = 256;

/// Why a body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadBody {
    /// The body is not a JSON object, or nests too deep.
    #[error("the body is not a JSON object, or nests too deep")]
    NotAnObject,
    /// A field of the body is missing or of the wrong type.
    #[error("a field of the body is missing or of the wrong type")]
    Fields,
    /// `apiKey` is empty or too long.
    #[error("`apiKey` is empty or too long")]
    ApiKey,
    /// `identityPublicKey` is not 32 bytes in base64url.
    #[error("`identityPublicKey` is not 32 bytes in base64url")]
    KeySpelling,
    /// `identityPublicKey` is not a canonical Ed25519 key of full order.
    #[error("`identityPublicKey` is not a canonical Ed25519 key of full order")]
    UnfitKey,
    /// `name` is empty, too long, or holds control characters.
    #[error("`name` must have 1 to {LONGEST_NAME} characters, none of them a control character")]
    Name,
    /// `process` is empty, too long, or holds control characters.
    #[error("`process` must have 1 to {LONGEST_NAME} characters, none of them a control character")]
    Process,
    /// `region` is empty, too long, or holds control characters.
    #[error("`region` must have 1 to {LONGEST_NAME} characters, none of them a control character")]
    Region,
    /// More than [`MOST_UNREACHABLE`] relays are named, or one that is no URL.
    #[error("`unreachable` names more than {MOST_UNREACHABLE} relays, or one that is no URL")]
    Unreachable,
    /// `daemonId` is empty or too long.
    #[error("`daemonId` is empty or too long")]
    DaemonId,
    /// `publicKey` is not a canonical Ed25519 key of full order, 32 bytes in base64url.
    #[error("`publicKey` is not a canonical Ed25519 key of full order, 32 bytes in base64url")]
    DeviceKey,
    /// `expiresAt` is not a time in seconds since 1970.
    #[error("`expiresAt` is not a time in seconds since 1970")]
    ExpiresAt,
    /// There are more than [`MOST_DEVICES`] devices.
    #[error("a daemon may have {MOST_DEVICES} devices; remove some that are not used")]
    TooManyDevices,
    /// `signature` is not 64 bytes in base64url without padding.
    #[error("`signature` is not 64 bytes in base64url without padding")]
    Signature,
}

/// A validated [`Register`].
#[derive(Clone)]
pub struct Registration {
    /// The API key, if it is in the body.
    pub api_key: Option<String>,
    /// The daemon's identity key.
    pub identity: IdentityKey,
    /// The display name.
    pub name: Option<String>,
    /// Whether the token is to have the scope `session:resume`.
    pub resumable: Option<bool>,
    /// The process that registers.
    pub process: DaemonProcess,
}

impl Register {
    /// Reads the body of `POST /api/daemons/register`.
    pub fn read(body: &[u8]) -> Result<Registration, BadBody> {
        let asked: Register = object(body)?;
        if asked.api_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > LONGEST_KEY) {
            return Err(BadBody::ApiKey);
        }
        let bytes = key_bytes(&asked.identity_public_key).ok_or(BadBody::KeySpelling)?;
        let identity = IdentityKey::from_bytes(&bytes).map_err(|_| BadBody::UnfitKey)?;
        let name = asked.name.map(|name| named(&name).ok_or(BadBody::Name)).transpose()?;
        let Self { api_key, resumable, process, .. } = asked;
        Ok(Registration { api_key, identity, name, resumable, process: process.checked()? })
    }
}

impl RenewPresence {
    /// Reads the body of `POST /api/daemons/{id}/presence`. Daemons of others send none.
    pub fn read(body: &[u8]) -> Result<Self, BadBody> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let asked: Self = object(body)?;
        Ok(Self { resumable: asked.resumable, process: asked.process.checked()? })
    }
}

impl DaemonProcess {
    fn checked(self) -> Result<Self, BadBody> {
        let Self { id, region, unreachable } = self;
        let text = |text: Option<String>, bad| text.map(|text| named(&text).ok_or(bad)).transpose();
        let urls = unreachable.len() <= MOST_UNREACHABLE
            && unreachable.iter().all(|url| (1..=LONGEST_URL).contains(&url.len()));
        Ok(Self {
            id: text(id, BadBody::Process)?,
            region: text(region, BadBody::Region)?,
            unreachable: if urls { unreachable } else { return Err(BadBody::Unreachable) },
        })
    }
}

impl OpenSession {
    /// Reads the body of `POST /api/sessions`.
    pub fn read(body: &[u8]) -> Result<Self, BadBody> {
        let asked: Self = object(body)?;
        let fits = (1..=LONGEST_ID).contains(&asked.daemon_id.len());
        if fits { Ok(asked) } else { Err(BadBody::DaemonId) }
    }
}

impl Rename {
    /// Reads the body of `PATCH /api/daemons/{id}`; the name is without the space around it.
    pub fn read(body: &[u8]) -> Result<Self, BadBody> {
        let asked: Self = object(body)?;
        named(&asked.name).map(|name| Self { name }).ok_or(BadBody::Name)
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Parses into a JSON value first: that parser limits the nesting depth and accepts only an object.
/// A derived parser would also accept an array and skip values of any depth.
pub(super) fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, BadBody> {
    fields(serde_json::from_slice(body).map_err(|_| BadBody::NotAnObject)?)
}

pub(super) fn fields<T: DeserializeOwned>(object: Map<String, Value>) -> Result<T, BadBody> {
    serde_json::from_value(Value::Object(object)).map_err(|_| BadBody::Fields)
}

pub(super) fn key_bytes(text: &str) -> Option<[u8; 32]> {
    let read = |alphabet: &Alphabet| {
        let padding = DecodePaddingMode::Indifferent;
        let config = GeneralPurposeConfig::new().with_decode_padding_mode(padding);
        GeneralPurpose::new(alphabet, config).decode(text).ok()
    };
    // 32 bytes are 44 base64 characters; longer texts are not decoded.
    let short = text.len() <= 44;
    short.then(|| read(&URL_SAFE).or_else(|| read(&STANDARD)))?.and_then(|b| b.try_into().ok())
}

fn named(text: &str) -> Option<String> {
    let name = text.trim();
    let fits = (1..=LONGEST_NAME).contains(&name.chars().count());
    (fits && !name.chars().any(char::is_control)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose as base64_engine;
    use serde_json::json;

    use super::*;
    use crate::identity::IdentitySecret;

    fn identity() -> IdentityKey {
        IdentitySecret::from_seed(&[0xfb; 32]).public()
    }

    #[test]
    fn a_name_is_short_and_printable() {
        let read = |name: &str| Rename::read(json!({ "name": name }).to_string().as_bytes());
        assert_eq!(read("  workshop ").map(|asked| asked.name), Ok("workshop".to_owned()));
        for bad in ["", "  ", "a\u{7}b", &"x".repeat(LONGEST_NAME + 1)] {
            assert_eq!(read(bad), Err(BadBody::Name), "{bad:?}");
        }
        assert_eq!(Rename::read(b"{}"), Err(BadBody::Fields));
        assert_eq!(Rename::read(b"[\"x\"]"), Err(BadBody::NotAnObject));
    }

    fn read(body: Value) -> Result<Registration, BadBody> {
        Register::read(body.to_string().as_bytes())
    }

    fn spelled() -> String {
        base64_engine::URL_SAFE_NO_PAD.encode(identity().as_bytes())
    }

    #[test]
    fn a_registration_is_read_and_its_name_trimmed() {
        let asked = read(json!({ "apiKey": "k", "identityPublicKey": spelled(),
                                 "name": " my laptop ", "resumable": false, "later": [1] }));
        let asked = asked.unwrap();
        assert_eq!(asked.identity, identity());
        assert_eq!(asked.name.as_deref(), Some("my laptop"));
        assert_eq!((asked.api_key.as_deref(), asked.resumable), (Some("k"), Some(false)));
        let bare = read(json!({ "identityPublicKey": spelled() })).unwrap();
        assert_eq!((bare.api_key, bare.name, bare.resumable), (None, None, None));
    }

    #[test]
    fn a_renewal_says_nothing_or_something_within_bounds() {
        assert_eq!(RenewPresence::read(b""), Ok(RenewPresence::default()));
        let read = |body: Value| RenewPresence::read(body.to_string().as_bytes());
        let asked = read(json!({ "process": "p", "region": " eu ", "unreachable": ["wss://r"],
                                 "resumable": true, "later": 1 }));
        let asked = asked.unwrap();
        assert_eq!((asked.resumable, asked.process.id.as_deref()), (Some(true), Some("p")));
        assert_eq!(asked.process.region.as_deref(), Some("eu"));
        assert_eq!(asked.process.unreachable, ["wss://r"]);
        for (body, bad) in [
            (json!({ "process": "" }), BadBody::Process),
            (json!({ "process": "x".repeat(65) }), BadBody::Process),
            (json!({ "region": "a\u{7}" }), BadBody::Region),
            (json!({ "unreachable": [""] }), BadBody::Unreachable),
            (json!({ "unreachable": vec!["x"; 17] }), BadBody::Unreachable),
            (json!({ "unreachable": ["x".repeat(2049)] }), BadBody::Unreachable),
            (json!({ "unreachable": 7 }), BadBody::Fields),
            (json!([]), BadBody::NotAnObject),
        ] {
            assert_eq!(read(body.clone()), Err(bad), "{body}");
        }
    }

    #[test]
    fn a_key_may_be_spelled_in_either_alphabet_with_or_without_padding() {
        let bytes = identity();
        let bytes = bytes.as_bytes();
        for text in [
            base64_engine::URL_SAFE.encode(bytes),
            base64_engine::URL_SAFE_NO_PAD.encode(bytes),
            base64_engine::STANDARD.encode(bytes),
            base64_engine::STANDARD_NO_PAD.encode(bytes),
        ] {
            let asked = read(json!({ "identityPublicKey": text })).unwrap();
            assert_eq!(asked.identity, identity(), "{text}");
        }
    }

    #[test]
    fn sbrp_crypto_03_a_weak_key_is_not_registered() {
        let mut one = [0; 32];
        one[0] = 1;
        for weak in [[0; 32], one] {
            let text = base64_engine::URL_SAFE_NO_PAD.encode(weak);
            let refused = read(json!({ "identityPublicKey": text })).unwrap_err();
            assert_eq!(refused, BadBody::UnfitKey);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_reason() {
        let with = |name: &str, value: Value| {
            let mut body = json!({ "identityPublicKey": spelled() });
            body[name] = value;
            read(body).err()
        };
        assert_eq!(with("name", json!("")), Some(BadBody::Name));
        assert_eq!(with("name", json!("a\u{1b}[31m")), Some(BadBody::Name));
        assert_eq!(with("name", json!("é".repeat(LONGEST_NAME))), None);
        assert_eq!(with("name", json!("é".repeat(LONGEST_NAME + 1))), Some(BadBody::Name));
        assert_eq!(with("apiKey", json!("")), Some(BadBody::ApiKey));
        assert_eq!(with("apiKey", json!("k".repeat(257))), Some(BadBody::ApiKey));
        assert_eq!(with("resumable", json!("yes")), Some(BadBody::Fields));
        assert_eq!(with("identityPublicKey", json!("AAAA")), Some(BadBody::KeySpelling));
        let long = "A".repeat(10_000);
        assert_eq!(with("identityPublicKey", json!(long)), Some(BadBody::KeySpelling));
        assert_eq!(read(json!({})).unwrap_err(), BadBody::Fields);
    }

    #[test]
    fn what_is_no_object_or_too_deep_is_refused() {
        let deep = format!("{{\"later\":{}{}}}", "[".repeat(8000), "]".repeat(8000));
        for body in ["", "[]", "null", "{", "\"x\"", "[\"k\"]", "\u{feff}{}", deep.as_str()] {
            assert_eq!(Register::read(body.as_bytes()).unwrap_err(), BadBody::NotAnObject);
            assert_eq!(OpenSession::read(body.as_bytes()), Err(BadBody::NotAnObject));
        }
    }

    #[test]
    fn a_session_names_its_daemon() {
        let read = |id: &str| OpenSession::read(json!({ "daemonId": id }).to_string().as_bytes());
        assert_eq!(read("d").unwrap().daemon_id, "d");
        assert_eq!(read(""), Err(BadBody::DaemonId));
        assert_eq!(read(&"d".repeat(LONGEST_ID + 1)), Err(BadBody::DaemonId));
        assert_eq!(OpenSession::read(b"{}"), Err(BadBody::Fields));
    }

    #[test]
    fn a_registration_shows_no_key_of_its_user() {
        let asked = read(json!({ "apiKey": "canary-key", "identityPublicKey": spelled() }));
        assert!(!format!("{:?}", asked.unwrap()).contains("canary"));
    }
}
