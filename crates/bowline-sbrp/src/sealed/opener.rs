//! Receiving: decrypts a Data payload and refuses replays.

use std::fmt;

use super::plaintext::Plaintext;
use super::window::ReplayWindow;
use super::{Direction, NONCE_LEN, TAG_LEN};
use crate::control::{ControlCode, SdkCode};
use crate::crypto::AeadKey;

/// An authentic message that was not received before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Its sequence number; a gap means that messages were dropped on the way.
    pub seq: u64,
    /// What it says.
    pub plaintext: Plaintext,
}

/// Why a message was not opened. The state is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnsealError {
    /// The message is shorter than a nonce and a tag.
    #[error("the message is shorter than a nonce and a tag")]
    Malformed,
    /// The message was sealed for the other direction.
    #[error("the message was sealed for the other direction")]
    WrongDirection,
    /// The message has a number that nobody may send.
    #[error("the message has a number that nobody may send")]
    Unsendable,
    /// The message was here before, or is too old to tell.
    #[error("the message was here before, or is too old to tell")]
    Replayed,
    /// The message was not sealed by the peer, or was changed.
    #[error("the message was not sealed by the peer, or was changed")]
    Forged,
}

impl UnsealError {
    /// The code reported to the user's program.
    pub fn code(self) -> SdkCode {
        match self {
            Self::Malformed | Self::WrongDirection | Self::Forged => SdkCode::DecryptFailed,
            Self::Unsendable | Self::Replayed => SdkCode::SequenceError,
        }
    }

    /// The protocol's name of the error.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => ControlCode::MalformedFrame.name(),
            _ => self.code().name(),
        }
    }
}

/// Decrypts the messages of the other endpoint.
pub struct Opener {
    direction: Direction,
    key: AeadKey,
    window: ReplayWindow,
}

impl Opener {
    pub(crate) fn new(direction: Direction, key: &[u8; 32]) -> Self {
        Self { direction, key: AeadKey::new(key), window: ReplayWindow::default() }
    }

    /// Opens the payload of a Data frame. The replay window is checked first, because that is
    /// cheap, and updated last, because only the AEAD tag proves that the peer sent this sequence
    /// number (SBRP-CRYPTO-07).
    pub fn open(&mut self, payload: &[u8]) -> Result<Opened, UnsealError> {
        let (nonce, sealed) =
            payload.split_first_chunk::<NONCE_LEN>().ok_or(UnsealError::Malformed)?;
        let (text, tag) = sealed.split_last_chunk::<TAG_LEN>().ok_or(UnsealError::Malformed)?;
        let [d0, d1, d2, d3, seq @ ..] = *nonce;
        if u32::from_be_bytes([d0, d1, d2, d3]) != self.direction as u32 {
            return Err(UnsealError::WrongDirection);
        }
        let seq = u64::from_be_bytes(seq);
        if seq == u64::MAX {
            return Err(UnsealError::Unsendable);
        }
        if !self.window.is_fresh(seq) {
            return Err(UnsealError::Replayed);
        }
        let mut plaintext = vec![0; text.len()];
        self.key.open(*nonce, text, tag, &mut plaintext).map_err(|_| UnsealError::Forged)?;
        self.window.record(seq);
        Ok(Opened { seq, plaintext: plaintext.into() })
    }

    pub(super) fn window(&self) -> &ReplayWindow {
        &self.window
    }

    /// Opens a whole Data frame, for tests.
    #[cfg(test)]
    pub(crate) fn open_frame(&mut self, frame: &[u8]) -> Result<Opened, UnsealError> {
        self.open(&frame[crate::frame::HEADER_LEN..])
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("direction", &self.direction)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}
