//! The content id of a bundle or a blob: a hash that detects changes.
//!
//! That of a bundle is the SHA-256 of what Python's `json.dumps(bundle, sort_keys=True)` writes, computed before
//! the id itself is added to the bundle (SBP-L3-04).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use bowline_pyjson::Value;

/// The member of a bundle that holds its content id.
pub const BUNDLE_CID: &str = "bundle_cid";

/// A SHA-256, spelled as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String))]
pub struct Cid([u8; 32]);

impl Cid {
    /// The id of any value.
    pub fn of(value: &Value) -> Self {
        let mut hash = Sha256::new();
        value.write_canonical(|piece| hash.update(piece));
        Self(hash.finalize().into())
    }

    /// The id of bytes as they are.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The id of a bundle, whether or not it already contains the id.
    pub fn of_bundle(bundle: &Value) -> Self {
        let mut hash = Sha256::new();
        bundle.write_canonical_without(BUNDLE_CID, |piece| hash.update(piece));
        Self(hash.finalize().into())
    }

    /// The thirty-two bytes, for keys and storage.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The inverse of [`Cid::as_bytes`].
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// The text is not a content id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a content id is 64 lower-case hexadecimal digits")]
pub struct InvalidCid;

impl FromStr for Cid {
    type Err = InvalidCid;

    fn from_str(text: &str) -> Result<Self, InvalidCid> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let pairs: &[[u8; 2]; 32] = pairs.try_into().map_err(|_| InvalidCid)?;
        let mut bytes = [0; 32];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        if rest.is_empty() { Ok(Self(bytes)) } else { Err(InvalidCid) }
    }
}

// Upper case is refused: one id would have several spellings.
fn nibble(digit: u8) -> Result<u8, InvalidCid> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidCid),
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Cid> for String {
    fn from(cid: Cid) -> Self {
        cid.to_string()
    }
}

impl TryFrom<String> for Cid {
    type Error = InvalidCid;

    fn try_from(text: String) -> Result<Self, InvalidCid> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY_OBJECT: &str = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

    #[test]
    fn sbp_l3_04_a_bundle_is_named_as_if_it_did_not_carry_its_name() {
        let bare = Value::parse(r#"{"b":1,"nested":{"bundle_cid":"stays"}}"#).unwrap();
        let mut named = bare.clone();
        named.as_object_mut().unwrap().insert(BUNDLE_CID, Cid::of(&bare).to_string());
        assert_eq!(Cid::of_bundle(&bare), Cid::of(&bare));
        assert_eq!(Cid::of_bundle(&named), Cid::of(&bare));
        assert_ne!(Cid::of(&named), Cid::of(&bare));
    }

    #[test]
    fn sbp_l3_04_a_cid_has_one_spelling() {
        let cid = Cid::of(&Value::parse("{}").unwrap());
        assert_eq!(cid.to_string(), EMPTY_OBJECT);
        assert_eq!(EMPTY_OBJECT.parse(), Ok(cid));
        assert_eq!(serde_json::to_string(&cid).unwrap(), format!("\"{EMPTY_OBJECT}\""));
        for other in [
            "",
            &EMPTY_OBJECT.to_uppercase(),
            &EMPTY_OBJECT[1..],
            &EMPTY_OBJECT[2..],
            &format!("{EMPTY_OBJECT}0"),
            &format!("{EMPTY_OBJECT}00"),
            &EMPTY_OBJECT.replace('4', "+"),
        ] {
            assert_eq!(other.parse::<Cid>(), Err(InvalidCid), "{other}");
        }
    }
}
