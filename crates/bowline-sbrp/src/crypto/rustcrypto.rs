//! The primitives in Rust alone: `chacha20poly1305` and `curve25519-dalek`. Slower than C and assembly, the
//! same bytes.

use chacha20poly1305::ChaCha20Poly1305;
use chacha20poly1305::aead::{AeadInOut as _, KeyInit as _};
use curve25519_dalek::montgomery::MontgomeryPoint;
use zeroize::Zeroizing;

use super::{NONCE_LEN, NotAuthentic, TAG_LEN};

/// A key of ChaCha20-Poly1305. The library wipes it when it is dropped.
pub(crate) struct AeadKey(ChaCha20Poly1305);

impl AeadKey {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(ChaCha20Poly1305::new(key.into()))
    }

    /// Encrypts in place and returns the tag. The caller never uses a nonce twice.
    pub(crate) fn seal(&self, nonce: [u8; NONCE_LEN], text: &mut [u8]) -> [u8; TAG_LEN] {
        let tag = self.0.encrypt_inout_detached(&nonce.into(), b"", text.into());
        tag.expect("a message that fits a frame is within what the cipher takes").into()
    }

    /// Decrypts into `plaintext`, which is as long as `text`. Authenticates first.
    pub(crate) fn open(
        &self,
        nonce: [u8; NONCE_LEN],
        text: &[u8],
        expected: &[u8; TAG_LEN],
        plaintext: &mut [u8],
    ) -> Result<(), NotAuthentic> {
        plaintext.copy_from_slice(text);
        let opened = self.0.decrypt_inout_detached(
            &nonce.into(),
            b"",
            plaintext.into(),
            &(*expected).into(),
        );
        opened.map_err(|_| NotAuthentic)
    }
}

/// An X25519 key pair for one agreement.
pub(crate) struct AgreementKey(Zeroizing<[u8; 32]>);

impl AgreementKey {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self(Zeroizing::new(*secret))
    }

    pub(crate) fn public(&self) -> [u8; 32] {
        MontgomeryPoint::mul_base_clamped(*self.0).to_bytes()
    }

    /// The shared secret. Zero if the peer's key is of small order.
    pub(crate) fn agree(self, peer: &[u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
        Some(Zeroizing::new(MontgomeryPoint(*peer).mul_clamped(*self.0).to_bytes()))
    }
}
