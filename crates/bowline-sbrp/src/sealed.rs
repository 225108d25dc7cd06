//! A sealed session: what one end sends and opens once the handshake is done.
//!
//! Apart from the handshake, because these live as long as the session and survive a resumed
//! connection as they are (SBRP-CRYPTO-09): the same keys, counters and window, or a new session.
//!
//! Invariants
//! - No nonce serves twice: the counter moves before a frame leaves, and never wraps.
//! - Opening checks, authenticates and records in one call; what fails moves nothing.

mod opener;
mod plaintext;
mod sealer;
mod window;

use aws_lc_rs::aead::{CHACHA20_POLY1305, LessSafeKey, UnboundKey};

pub use opener::{Opened, Opener, UnsealError};
pub use plaintext::Plaintext;
pub use sealer::{MAX_PLAINTEXT, SealError, Sealer};
pub use window::ReplayWindow;

const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;

/// Which way a message goes. Its number is the first word of the nonce (SBRP-CRYPTO-05).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ClientToDaemon = 1,
    DaemonToClient = 2,
}

impl Direction {
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

/// Both directions of a session, at one end.
#[derive(Debug)]
pub struct Channel {
    pub sealer: Sealer,
    pub opener: Opener,
}

impl Channel {
    /// Whether the session can go on after its connection was lost (SBRP-DAEMON-05). That all
    /// parts are there and keys are whole is in the types; left are the counter and the window.
    pub fn can_resume(&self) -> bool {
        !self.sealer.is_exhausted() && self.opener.window().is_consistent()
    }
}

/// The library wipes the key when it is dropped.
fn cipher(key: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the cipher takes 32 bytes");
    LessSafeKey::new(key)
}

#[cfg(test)]
mod tests;
