//! An ephemeral key pair for one handshake.

use std::fmt;

use zeroize::Zeroizing;

use crate::crypto::AgreementKey;

/// An X25519 key pair for one use: the key agreement consumes it. The secret key is wiped.
pub struct Ephemeral {
    secret: AgreementKey,
    public: [u8; 32],
}

impl Ephemeral {
    /// From 32 fresh random bytes that are used for nothing else.
    pub fn from_random(bytes: Zeroizing<[u8; 32]>) -> Self {
        let secret = AgreementKey::new(&bytes);
        let public = secret.public();
        Self { secret, public }
    }

    pub(super) fn public(&self) -> [u8; 32] {
        self.public
    }

    /// The shared secret; `None` if the peer's public key forces it to zero (SBRP-CRYPTO-04).
    pub(super) fn agree(self, peer: &[u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
        let shared = self.secret.agree(peer);
        shared.filter(|shared| shared.iter().any(|byte| *byte != 0))
    }
}

impl fmt::Debug for Ephemeral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ephemeral")
    }
}
