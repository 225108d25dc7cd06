//! A blob: an image, sound or file that was taken out of a message, and the reference that the
//! message keeps (`media`).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::cid::Cid;

/// How a reference begins.
pub(crate) const PREFIX: &str = "blob:sha256:";

/// Bytes that were taken out of a message.
#[derive(Clone, PartialEq, Eq)]
pub struct Blob {
    /// The SHA-256 of the bytes.
    pub cid: Cid,
    pub bytes: Arc<[u8]>,
}

/// What a message keeps in place of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlobRef {
    pub cid: Cid,
    /// The size of the blob, in bytes.
    pub size: u64,
}

impl Blob {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { cid: Cid::of_bytes(&bytes), bytes: bytes.into() }
    }

    pub fn reference(&self) -> BlobRef {
        BlobRef { cid: self.cid, size: self.bytes.len() as u64 }
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({})", self.reference())
    }
}

/// Base64, as in a message: commands may go to another process.
impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(&self.bytes))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        let bytes = STANDARD.decode(text.as_bytes()).map_err(serde::de::Error::custom)?;
        Ok(Self::new(bytes))
    }
}

impl fmt::Display for BlobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}:{}", self.cid, self.size)
    }
}

impl BlobRef {
    /// Parses a whole reference.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (cid, size) = text.strip_prefix(PREFIX)?.split_once(':')?;
        // A number has one spelling.
        let plain = size.bytes().all(|byte| byte.is_ascii_digit()) && !size.starts_with('0');
        Some(Self { cid: cid.parse().ok()?, size: size.parse().ok().filter(|_| plain)? })
    }

    /// The length of its bytes as base64.
    pub fn encoded(&self) -> u64 {
        self.size.div_ceil(3).saturating_mul(4)
    }
}
