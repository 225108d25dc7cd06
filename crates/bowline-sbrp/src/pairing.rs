//! Pairing: the one-time code that a person carries from a daemon to a device.
//!
//! The daemon shows a short text (and the same as a QR code). It holds all that the device needs to
//! reach the daemon and to know it for certain: the control plane's address, the daemon's id, the
//! fingerprint of its identity key, and the code. Nothing is trusted on first use: the fingerprint
//! came with the person.
//!
//! ```text
//! bowline-pair: <base64url of
//!     01 | code 16 | fingerprint 32 | length u8, daemon id | control plane's URL | check 4 >
//! ```
//!
//! Base64url only, so that no shell or messenger changes it; line breaks of a terminal are ignored. The
//! check is the beginning of the SHA-256 of all before it: a text that was not copied whole is noticed
//! before anybody is asked anything.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::id::DaemonId;
use crate::identity::{Fingerprint, IdentitySecret};

/// The length of a code: 128 random bits, which nobody guesses within its lifetime.
pub const CODE_LEN: usize = 16;

/// A one-time code. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingCode(Zeroizing<[u8; CODE_LEN]>);

impl PairingCode {
    /// From fresh random bytes that are used for nothing else.
    pub fn from_random(bytes: [u8; CODE_LEN]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The secret bytes.
    pub fn as_bytes(&self) -> &[u8; CODE_LEN] {
        &self.0
    }

    /// The key by which a device that has the code gets relay tokens until it is paired. Derived, so
    /// that the control plane can know the public half and learns nothing of the code.
    pub fn token_key(&self) -> IdentitySecret {
        let seed = Sha256::new().chain_update(TOKEN_KEY).chain_update(*self.0).finalize();
        IdentitySecret::from_seed(&seed.into())
    }
}

impl fmt::Debug for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairingCode(…)")
    }
}

/// What the text of a pairing says.
#[derive(Debug, Clone, PartialEq)]
pub struct PairingText {
    /// The one-time code.
    pub code: PairingCode,
    /// The fingerprint of the daemon's key.
    pub fingerprint: Fingerprint,
    /// The daemon's id.
    pub daemon: DaemonId,
    /// The control plane's URL, from which the device gets its relay tokens.
    pub control: String,
}

/// The text is no pairing text, or of a newer version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPairingText {
    /// This is not a pairing text: it begins with `bowline-pair:`.
    #[error("this is not a pairing text: it begins with `bowline-pair:`")]
    NotOne,
    /// The pairing text is incomplete or was changed.
    #[error("the pairing text is incomplete or was changed")]
    Damaged,
    /// The pairing text is of a newer version.
    #[error("the pairing text is of a newer version")]
    Newer,
}

impl fmt::Display for PairingText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.daemon.as_str().as_bytes();
        let mut bytes = Zeroizing::new(vec![VERSION]);
        bytes.extend_from_slice(self.code.as_bytes());
        bytes.extend_from_slice(self.fingerprint.as_bytes());
        bytes.push(u8::try_from(id.len()).unwrap_or(u8::MAX));
        bytes.extend_from_slice(&id[..id.len().min(usize::from(u8::MAX))]);
        bytes.extend_from_slice(self.control.as_bytes());
        let check = check(&bytes);
        bytes.extend_from_slice(&check);
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(&*bytes))
    }
}

impl FromStr for PairingText {
    type Err = BadPairingText;

    fn from_str(text: &str) -> Result<Self, BadPairingText> {
        let text: Zeroizing<String> = Zeroizing::new(text.split_ascii_whitespace().collect());
        let encoded = text.strip_prefix(PREFIX).ok_or(BadPairingText::NotOne)?;
        if encoded.len() > LONGEST {
            return Err(BadPairingText::Damaged);
        }
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| BadPairingText::Damaged)?;
        let bytes = Zeroizing::new(bytes);
        match bytes.split_first() {
            Some((&VERSION, _)) => checked(&bytes).and_then(read).ok_or(BadPairingText::Damaged),
            Some(_) => Err(BadPairingText::Newer),
            None => Err(BadPairingText::Damaged),
        }
    }
}

/// The bytes between version and check, if the check holds.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (before, found) = bytes.split_last_chunk::<CHECK_LEN>()?;
    (*found == check(before)).then(|| before.get(1..))?
}

fn check(bytes: &[u8]) -> [u8; CHECK_LEN] {
    let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(bytes).into();
    [a, b, c, d]
}

fn read(bytes: &[u8]) -> Option<PairingText> {
    let (code, rest) = bytes.split_first_chunk()?;
    let (fingerprint, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first()?;
    let (daemon, control) = rest.split_at_checked(usize::from(*length))?;
    let text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty());
        text.filter(|text| !text.chars().any(char::is_control)).map(str::to_owned)
    };
    Some(PairingText {
        code: PairingCode::from_random(*code),
        fingerprint: Fingerprint::from_bytes(*fingerprint),
        daemon: DaemonId::new(text(daemon)?),
        control: text(control)?,
    })
}

const PREFIX: &str = "bowline-pair:";
const VERSION: u8 = 1;
const CHECK_LEN: usize = 4;
const TOKEN_KEY: &[u8] = b"sbrp-pair-token-v1";
/// Ids and URLs are short; more is not read.
const LONGEST: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn pairing() -> PairingText {
        PairingText {
            code: PairingCode::from_random([7; CODE_LEN]),
            fingerprint: Fingerprint::from_bytes([9; 32]),
            daemon: DaemonId::new("d-1"),
            control: "https://c".into(),
        }
    }

    #[test]
    fn a_pairing_text_is_written_and_read() {
        let text = pairing().to_string();
        assert_eq!(
            text,
            "bowline-pair:AQcHBwcHBwcHBwcHBwcHBwcJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQNkLTFodHRwczovL2OjAqNv"
        );
        assert_eq!(format!(" {}\r\n  {}\n", &text[..60], &text[60..]).parse(), Ok(pairing()));
        assert!(!format!("{:?}", pairing()).contains("7, 7"));
    }

    #[test]
    fn the_token_key_follows_from_the_code() {
        let key = |byte| PairingCode::from_random([byte; CODE_LEN]).token_key().public();
        let hex: String = key(7).as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "07dfd167a08641e9e2a0b8bec1773469beb5de12cedd9bea369132b80304f86c");
        assert_ne!(key(7), key(8));
    }

    #[test]
    fn what_is_cut_changed_or_newer_is_refused() {
        let text = pairing().to_string();
        assert_eq!("https://x".parse::<PairingText>(), Err(BadPairingText::NotOne));
        for length in PREFIX.len()..text.len() {
            let cut = text[..length].parse::<PairingText>();
            assert_eq!(cut, Err(BadPairingText::Damaged), "{length}");
        }
        let newer = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode([2; 80]));
        assert_eq!(newer.parse::<PairingText>(), Err(BadPairingText::Newer));
        let long = format!("{PREFIX}{}", "A".repeat(LONGEST + 1));
        assert_eq!(long.parse::<PairingText>(), Err(BadPairingText::Damaged));
    }
}
