//! An ephemeral key pair for one handshake.

use std::fmt;

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use zeroize::Zeroizing;

/// An X25519 key pair for one use: the key agreement consumes it. The library wipes the secret key.
pub struct Ephemeral {
    secret: PrivateKey,
    public: [u8; 32],
}

impl Ephemeral {
    /// From 32 fresh random bytes that are used for nothing else.
    pub fn from_random(bytes: Zeroizing<[u8; 32]>) -> Self {
        let secret = PrivateKey::from_private_key(&X25519, bytes.as_ref())
            .expect("any 32 bytes are an X25519 scalar");
        let computed = secret.compute_public_key().expect("every scalar has a public key");
        let public = computed.as_ref().try_into().expect("an X25519 key has 32 bytes");
        Self { secret, public }
    }

    pub(super) fn public(&self) -> [u8; 32] {
        self.public
    }

    /// The shared secret; `None` if the peer's public key forces it to zero (SBRP-CRYPTO-04).
    pub(super) fn agree(self, peer: &[u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
        let peer = UnparsedPublicKey::new(&X25519, peer);
        let shared = agreement::agree(&self.secret, peer, (), |secret| {
            let mut shared = Zeroizing::new([0; 32]);
            shared.copy_from_slice(secret);
            Ok(shared)
        });
        // The library refuses a zero secret itself; the check here does not rely on that.
        shared.ok().filter(|shared| shared.iter().any(|byte| *byte != 0))
    }
}

impl fmt::Debug for Ephemeral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ephemeral")
    }
}
