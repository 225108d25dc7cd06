//! The handshake: one frame each way, after which both ends hold the same two keys.
//!
//! The client sends an ephemeral X25519 key; the daemon answers with its own, its identity and a
//! signature over both. Every step consumes what it needs, so that no ephemeral serves twice and
//! no key exists before the signature was verified.
//!
//! Invariants
//! - [`VerifiedIdentity`] is made in one place only: after the signature held (SBRP-CLIENT-01).
//! - A pinned key is the one that verifies; what the frame says is only compared (SBRP-CLIENT-03).
//! - No error holds key material (SBRP-CRYPTO-10).

mod client;
mod daemon;
mod ephemeral;
mod transcript;

pub use client::{AwaitAccept, Established, KeyChange, Trust, VerifiedIdentity};
pub use daemon::{HandshakeAnswer, answer};
pub use ephemeral::Ephemeral;

use crate::control::{ControlCode, SdkCode};

/// How long a handshake may take (SBRP-CLIENT-06, SBRP-DAEMON-04).
pub const TIME_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

const INIT_LEN: usize = 32;
const ACCEPT_LEN: usize = 128;

/// Why there is no session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    #[error("the handshake message does not have its fixed size")]
    Malformed,
    #[error("the daemon shows another identity key than the pinned one")]
    KeyChanged(Box<KeyChange>),
    #[error("the daemon's identity key is not fit to vouch for anything")]
    UnfitIdentity,
    #[error("the daemon's signature does not hold")]
    BadSignature,
    #[error("the peer's ephemeral key leads to no secret")]
    WeakEphemeral,
}

impl HandshakeError {
    /// What the user's program is told.
    pub fn code(&self) -> SdkCode {
        match self {
            Self::KeyChanged(_) => SdkCode::IdentityKeyChanged,
            _ => SdkCode::HandshakeFailed,
        }
    }

    /// The protocol's name of the fault.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Malformed => ControlCode::MalformedFrame.name(),
            _ => self.code().name(),
        }
    }
}

#[cfg(test)]
mod tests;
