//! A sealed session: encryption and decryption at one endpoint after the handshake.
//!
//! Separate from the handshake, because this state lives as long as the session and survives a
//! resumed connection unchanged (SBRP-CRYPTO-09): the same keys, counters and replay window, or
//! else a new session.
//!
//! Invariants
//! - No nonce is used twice: the counter is incremented before a frame is returned, and never
//!   wraps.
//! - Opening checks the replay window, authenticates and records in one call; a failure changes no
//!   state.

mod opener;
mod plaintext;
mod sealer;
mod window;

pub use opener::{Opened, Opener, UnsealError};
pub use plaintext::Plaintext;
pub use sealer::{MAX_PLAINTEXT, SealError, Sealer};
pub use window::ReplayWindow;

use crate::crypto::{NONCE_LEN, TAG_LEN};

/// The direction of a message. Its number is the first word of the nonce (SBRP-CRYPTO-05).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// What the client seals.
    ClientToDaemon = 1,
    /// What the daemon seals.
    DaemonToClient = 2,
}

impl Direction {
    /// The other one.
    pub fn reverse(self) -> Self {
        match self {
            Self::ClientToDaemon => Self::DaemonToClient,
            Self::DaemonToClient => Self::ClientToDaemon,
        }
    }

    fn nonce(self, seq: u64) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&(self as u32).to_be_bytes());
        nonce[4..].copy_from_slice(&seq.to_be_bytes());
        nonce
    }
}

/// Both directions of a session, at one endpoint.
#[derive(Debug)]
pub struct Channel {
    /// Encrypts what this end sends.
    pub sealer: Sealer,
    /// Decrypts what the other end sent.
    pub opener: Opener,
}

impl Channel {
    /// Whether the session can continue after its connection was lost (SBRP-DAEMON-05). The types
    /// guarantee that all keys are present; the counter and the replay window are checked here.
    pub fn can_resume(&self) -> bool {
        !self.sealer.is_exhausted() && self.opener.window().is_consistent()
    }
}

#[cfg(test)]
mod tests;
