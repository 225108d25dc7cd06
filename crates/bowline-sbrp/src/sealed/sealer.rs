//! Sending: encrypts plaintext into a whole Data frame.

use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{Direction, NONCE_LEN, TAG_LEN};
use crate::crypto::AeadKey;
use crate::frame::{FrameType, HEADER_LEN, Header, MAX_PAYLOAD};
use crate::id::SessionId;

/// The longest plaintext that fits into a frame.
pub const MAX_PLAINTEXT: usize = MAX_PAYLOAD - NONCE_LEN - TAG_LEN;

/// Why a message was not sealed. The counter is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The message does not fit a frame; its length.
    #[error("a message of {0} bytes does not fit a frame")]
    TooLong(usize),
    /// The session has used up its sequence numbers and needs a new handshake.
    #[error("the session has used up its sequence numbers and needs a new handshake")]
    Exhausted,
}

/// Encrypts what one endpoint sends. Its counter only increases.
pub struct Sealer {
    session: SessionId,
    direction: Direction,
    key: AeadKey,
    next: u64,
}

impl Sealer {
    pub(crate) fn new(session: SessionId, direction: Direction, key: &[u8; 32]) -> Self {
        Self { session, direction, key: AeadKey::new(key), next: 0 }
    }

    /// Sequence number 2^64 − 1 is never sent: the counter could not advance past it
    /// (SBRP-CRYPTO-06).
    pub fn is_exhausted(&self) -> bool {
        self.next == u64::MAX
    }

    /// Seals the next Data frame, as one message.
    pub fn seal(&mut self, plaintext: &[u8]) -> Result<Bytes, SealError> {
        if plaintext.len() > MAX_PLAINTEXT {
            return Err(SealError::TooLong(plaintext.len()));
        }
        if self.is_exhausted() {
            return Err(SealError::Exhausted);
        }
        let nonce = self.direction.nonce(self.next);
        // Incremented first: this nonce is spent even if a later step fails.
        self.next += 1;

        let length = NONCE_LEN + plaintext.len() + TAG_LEN;
        let mut frame = BytesMut::with_capacity(HEADER_LEN + length);
        frame.put_slice(&Header::encode(FrameType::Data, length as u32, Some(self.session)));
        frame.put_slice(&nonce);
        frame.put_slice(plaintext);
        let tag = self.key.seal(nonce, &mut frame[HEADER_LEN + NONCE_LEN..]);
        frame.put_slice(&tag);
        Ok(frame.freeze())
    }

    /// Sets the next sequence number, for tests near the end of the range.
    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, next: u64) {
        self.next = next;
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("direction", &self.direction)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
