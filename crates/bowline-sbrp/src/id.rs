//! Identifiers of sessions and daemons.
//!
//! A session id is eight bytes and never zero: zero in a frame's header means "the connection". As
//! text it is base64url without padding, decoded strictly, so that each id has exactly one
//! encoding.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// One client's session with one daemon.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(NonZeroU64);

impl SessionId {
    /// The id in a frame's header; `None` if zero.
    pub fn from_wire(value: u64) -> Option<Self> {
        NonZeroU64::new(value).map(Self)
    }

    /// The id in a frame's header.
    pub fn to_wire(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.to_wire().to_be_bytes()))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

/// The text is not a valid session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a session id is base64url of eight bytes that are not all zero, without padding")]
pub struct BadSessionId;

impl FromStr for SessionId {
    type Err = BadSessionId;

    fn from_str(text: &str) -> Result<Self, BadSessionId> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadSessionId)?;
        let bytes = <[u8; 8]>::try_from(bytes).map_err(|_| BadSessionId)?;
        Self::from_wire(u64::from_be_bytes(bytes)).ok_or(BadSessionId)
    }
}

/// The control plane's identifier of a daemon. Hashed as its UTF-8 bytes, never normalised
/// (SBRP-CRYPTO-02).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DaemonId(String);

impl DaemonId {
    /// Any text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors;

    #[test]
    fn sbrp_token_12_session_ids_read_and_write_as_the_vectors_say() {
        let ids = vectors::section("session_ids");
        let valid = ids["valid"].as_array().unwrap();
        assert_eq!(valid.len(), 14);
        for row in valid {
            let text = vectors::text(row, "sid_b64url");
            let id: SessionId = text.parse().unwrap();
            assert_eq!(id.to_wire(), vectors::number(row, "u64"), "{text}");
            assert_eq!(id.to_string(), text);
        }
        let invalid = ids["invalid"].as_array().unwrap();
        assert_eq!(invalid.len(), 15);
        for row in invalid {
            let text = vectors::text(row, "sid");
            assert_eq!(text.parse::<SessionId>(), Err(BadSessionId), "{text:?}: {}", row["why"]);
        }
    }

    #[test]
    fn zero_is_no_session() {
        assert_eq!(SessionId::from_wire(0), None);
    }
}
