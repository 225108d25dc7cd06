//! The API key of a user: shown once, stored as a hash.
//!
//! Thirty-two random bytes cannot be guessed and need no slow hash. But the time of a comparison
//! must not reveal how much of a guess was right: a key is looked up by the first bytes of its
//! hash, and the whole hash is then compared in constant time.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, Zeroizing};

/// The prefix of all keys, so that people and secret scanners recognise a leaked one.
const PREFIX: &str = "bck_";

/// A new key. It is shown to its user once.
pub struct ApiKey(Zeroizing<String>);

impl ApiKey {
    pub(super) fn make() -> Self {
        let mut bytes = random::<32>();
        let key = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        bytes.zeroize();
        Self(Zeroizing::new(key))
    }

    /// The key as text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// The hash of a key, which is what the registry stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of the key that a caller presents.
    pub fn of(shown: &str) -> Self {
        Self(Sha256::digest(shown.as_bytes()).into())
    }

    pub(super) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The lookup tag: four bytes of the hash, too few to help in guessing a key.
    pub(super) fn tag(&self) -> i64 {
        let [a, b, c, d, ..] = self.0;
        i64::from(u32::from_be_bytes([a, b, c, d]))
    }

    pub(super) fn matches(&self, kept: &[u8]) -> bool {
        self.0.ct_eq(kept).into()
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// Random bytes from the operating system's generator.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_long_and_new_each_time_and_matches_only_its_own_hash() {
        let (one, other) = (ApiKey::make(), ApiKey::make());
        assert!(one.reveal().starts_with(PREFIX) && one.reveal().len() == PREFIX.len() + 43);
        let hash = KeyHash::of(one.reveal());
        assert!(hash.matches(KeyHash::of(one.reveal()).as_bytes()));
        assert!(!hash.matches(KeyHash::of(other.reveal()).as_bytes()));
        assert!(!hash.matches(&hash.as_bytes()[..31]), "a part is not the whole");
    }

    #[test]
    fn nothing_of_a_key_is_in_debug_output() {
        let key = ApiKey::make();
        let shown = format!("{key:?} {:?}", KeyHash::of(key.reveal()));
        assert_eq!(shown, "ApiKey(…) KeyHash(…)");
    }
}
