//! The handshake: one frame each way, after which both endpoints hold the same two keys.
//!
//! The client sends an ephemeral X25519 key; the daemon answers with its own ephemeral key, its
//! identity key and a signature over both. Each step consumes its inputs, so that no ephemeral key
//! is used twice and no session key exists before the signature is verified.
//!
//! Invariants
//! - [`VerifiedIdentity`] is created only after the signature was verified (SBRP-CLIENT-01).
//! - The signature is verified with the pinned key; the key in the frame is only compared with the
//!   pin (SBRP-CLIENT-03).
//! - No error contains key material (SBRP-CRYPTO-10).

mod client;
mod daemon;
mod ephemeral;
mod transcript;

pub use client::{AwaitAccept, Established, KeyChange, Trust, VerifiedIdentity};
pub use daemon::{HandshakeAnswer, answer};
pub use ephemeral::Ephemeral;
pub use transcript::ChannelBinding;

use crate::control::{ControlCode, SdkCode};

/// The deadline of a handshake (SBRP-CLIENT-06, SBRP-DAEMON-04).
pub const TIME_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

const INIT_LEN: usize = 32;
const ACCEPT_LEN: usize = 128;

/// Why a handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The handshake message does not have its fixed size.
    #[error("the handshake message does not have its fixed size")]
    Malformed,
    /// The daemon shows another identity key than the pinned one.
    #[error("the daemon shows another identity key than the pinned one")]
    KeyChanged(KeyChange),
    /// The daemon's identity key is not fit to vouch for anything.
    #[error("the daemon's identity key is not fit to vouch for anything")]
    UnfitIdentity,
    /// The daemon's signature does not hold.
    #[error("the daemon's signature does not hold")]
    BadSignature,
    /// The peer's ephemeral key leads to no secret.
    #[error("the peer's ephemeral key leads to no secret")]
    WeakEphemeral,
}

impl HandshakeError {
    /// The code reported to the user's program.
    pub fn code(&self) -> SdkCode {
        match self {
            Self::KeyChanged(_) => SdkCode::IdentityKeyChanged,
            _ => SdkCode::HandshakeFailed,
        }
    }

    /// The protocol's name of the error.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Malformed => ControlCode::MalformedFrame.name(),
            _ => self.code().name(),
        }
    }
}

#[cfg(test)]
mod tests;
