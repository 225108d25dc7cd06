//! Decrypted messages.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

/// A decrypted message. `Debug` shows only its length, so that no log of events or actions contains
/// it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Plaintext(Bytes);

impl Plaintext {
    /// The bytes.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl From<Vec<u8>> for Plaintext {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<Bytes> for Plaintext {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl Deref for Plaintext {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Plaintext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plaintext({} bytes)", self.0.len())
    }
}
