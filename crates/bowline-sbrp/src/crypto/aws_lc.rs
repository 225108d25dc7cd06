//! The primitives of `aws-lc-rs`, which wipes its keys itself.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use zeroize::Zeroizing;

use super::{NONCE_LEN, NotAuthentic, TAG_LEN};

/// A key of ChaCha20-Poly1305.
pub(crate) struct AeadKey(LessSafeKey);

impl AeadKey {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the cipher takes 32 bytes");
        Self(LessSafeKey::new(key))
    }

    /// Encrypts in place and returns the tag. The caller never uses a nonce twice.
    #[inline]
    pub(crate) fn seal(&self, nonce: [u8; NONCE_LEN], text: &mut [u8]) -> [u8; TAG_LEN] {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::empty(), text)
            .expect("a message that fits a frame is within what the cipher takes");
        tag.as_ref().try_into().expect("the tag has 16 bytes")
    }

    /// Decrypts into `plaintext`, which is as long as `text`.
    #[inline]
    pub(crate) fn open(
        &self,
        nonce: [u8; NONCE_LEN],
        text: &[u8],
        tag: &[u8; TAG_LEN],
        plaintext: &mut [u8],
    ) -> Result<(), NotAuthentic> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0
            .open_separate_gather(nonce, Aad::empty(), text, tag, plaintext)
            .map_err(|_| NotAuthentic)
    }
}

/// An X25519 key pair for one agreement.
pub(crate) struct AgreementKey(PrivateKey);

impl AgreementKey {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        let key = PrivateKey::from_private_key(&X25519, secret);
        Self(key.expect("any 32 bytes are an X25519 scalar"))
    }

    pub(crate) fn public(&self) -> [u8; 32] {
        let public = self.0.compute_public_key().expect("every scalar has a public key");
        public.as_ref().try_into().expect("an X25519 key has 32 bytes")
    }

    /// The shared secret. May be zero, or `None` where the library refuses that itself.
    pub(crate) fn agree(self, peer: &[u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
        let peer = UnparsedPublicKey::new(&X25519, peer);
        let shared = agreement::agree(&self.0, peer, (), |secret| {
            let mut shared = Zeroizing::new([0; 32]);
            shared.copy_from_slice(secret);
            Ok(shared)
        });
        shared.ok()
    }
}
