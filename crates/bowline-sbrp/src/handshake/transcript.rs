//! The signed hash, the transcript hash, and the derivation of the two session keys.
//!
//! Strings are concatenated as UTF-8, without BOM or length prefix (SBRP-CRYPTO-02). All parts but
//! the daemon id have a fixed length, so no byte can be moved from one part to another.

use hkdf::Hkdf;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::id::{DaemonId, SessionId};
use crate::sealed::{Channel, Direction, Opener, Sealer};

const SIGNED: &[u8] = b"sbrp-v1-handshake";
const TRANSCRIPT: &[u8] = b"sbrp-v1-transcript";
const KEYS: &[u8] = b"sbrp-session-keys";

/// What a proof inside the sealed channel is bound to: the transcript of its handshake. Two channels
/// never have the same one, since both ends add a fresh ephemeral key (SBRP-PEER-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelBinding(pub(crate) [u8; 32]);

impl ChannelBinding {
    /// For a channel that was agreed on elsewhere, and for tests.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// The public values of a handshake.
#[derive(Debug)]
pub(super) struct Transcript<'a> {
    pub(super) daemon: &'a DaemonId,
    pub(super) client_ephemeral: [u8; 32],
    pub(super) daemon_ephemeral: [u8; 32],
}

impl Transcript<'_> {
    /// The hash that the daemon signs (SBRP-CRYPTO-03).
    pub(super) fn signed(&self) -> [u8; 32] {
        self.hash(SIGNED).finalize().into()
    }

    /// The HKDF salt of the session keys (SBRP-CRYPTO-04).
    pub(super) fn salt(&self, signature: &[u8; 64]) -> [u8; 32] {
        self.hash(TRANSCRIPT).chain_update(signature).finalize().into()
    }

    fn hash(&self, context: &[u8]) -> Sha256 {
        Sha256::new()
            .chain_update(context)
            .chain_update(self.daemon.as_str())
            .chain_update(self.client_ephemeral)
            .chain_update(self.daemon_ephemeral)
    }

    pub(super) fn binding(&self, signature: &[u8; 64]) -> ChannelBinding {
        ChannelBinding(self.salt(signature))
    }

    /// Derives both session keys from the shared secret of the key agreement.
    pub(super) fn keys(&self, shared: &[u8; 32], signature: &[u8; 64]) -> SessionKeys {
        let mut keys = SessionKeys(Zeroizing::new([0; 64]));
        Hkdf::<Sha256>::new(Some(&self.salt(signature)), shared)
            .expand(KEYS, keys.0.as_mut())
            .expect("64 bytes are within what HKDF gives");
        keys
    }
}

/// The key from client to daemon, then the key from daemon to client.
pub(super) struct SessionKeys(Zeroizing<[u8; 64]>);

impl SessionKeys {
    pub(super) fn of(&self, direction: Direction) -> &[u8; 32] {
        let (first, rest) = self.0.split_first_chunk::<32>().expect("64 bytes hold 32");
        match direction {
            Direction::ClientToDaemon => first,
            Direction::DaemonToClient => rest.first_chunk().expect("64 bytes hold twice 32"),
        }
    }

    /// The channel of the endpoint that sends in this direction.
    pub(super) fn channel(&self, session: SessionId, sends: Direction) -> Channel {
        Channel {
            sealer: Sealer::new(session, sends, self.of(sends)),
            opener: Opener::new(sends.reverse(), self.of(sends.reverse())),
        }
    }
}
