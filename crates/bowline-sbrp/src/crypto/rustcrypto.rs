//! The primitives in Rust alone: `chacha20` and `curve25519-dalek`, and the authenticator beside this
//! file. Slower than C and assembly, the same bytes.
//!
//! The cipher is taken from the crate's generator of random numbers, which is the key stream of
//! ChaCha20 with a 64-bit block counter and a 64-bit nonce. RFC 8439 divides the same 128 bits into a
//! 32-bit counter and a 96-bit nonce: the nonce's first word is the upper half of the counter here. A
//! frame has about a thousand blocks, so that the lower half never overflows into it.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};
use curve25519_dalek::montgomery::MontgomeryPoint;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::poly1305::Poly1305;
use super::{NONCE_LEN, NotAuthentic, TAG_LEN};

/// A block of the key stream.
const BLOCK: usize = 64;
/// How much of the key stream is made at a time: what the cipher makes in parallel.
const CHUNK: usize = 4 * BLOCK;

/// A key of ChaCha20-Poly1305.
pub(crate) struct AeadKey(Zeroizing<[u8; 32]>);

impl AeadKey {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(Zeroizing::new(*key))
    }

    /// Encrypts in place and returns the tag. The caller never uses a nonce twice.
    pub(crate) fn seal(&self, nonce: [u8; NONCE_LEN], text: &mut [u8]) -> [u8; TAG_LEN] {
        let (mut stream, authenticator) = self.start(nonce);
        stream.apply(text);
        tag(authenticator, text)
    }

    /// Decrypts into `plaintext`, which is as long as `text`. Authenticates first.
    pub(crate) fn open(
        &self,
        nonce: [u8; NONCE_LEN],
        text: &[u8],
        expected: &[u8; TAG_LEN],
        plaintext: &mut [u8],
    ) -> Result<(), NotAuthentic> {
        let (mut stream, authenticator) = self.start(nonce);
        if !bool::from(tag(authenticator, text).ct_eq(expected)) {
            return Err(NotAuthentic);
        }
        plaintext.copy_from_slice(text);
        stream.apply(plaintext);
        Ok(())
    }

    /// The first block is the authenticator's one-time key; the message begins with the second.
    fn start(&self, nonce: [u8; NONCE_LEN]) -> (KeyStream, Poly1305) {
        let mut stream = KeyStream::new(&self.0, nonce);
        let mut first = Zeroizing::new([0; BLOCK]);
        stream.0.fill_bytes(&mut *first);
        let key = first.first_chunk().expect("a block holds 32 bytes");
        (stream, Poly1305::new(key))
    }
}

/// RFC 8439, 2.8: the text padded to 16 bytes, then the lengths of the (empty) additional data and of
/// the text.
fn tag(mut authenticator: Poly1305, text: &[u8]) -> [u8; TAG_LEN] {
    let (whole, rest) = text.as_chunks::<16>();
    for block in whole {
        authenticator.update(block);
    }
    if !rest.is_empty() {
        let mut padded = [0; 16];
        padded[..rest.len()].copy_from_slice(rest);
        authenticator.update(&padded);
    }
    let mut lengths = [0; 16];
    lengths[8..].copy_from_slice(&(text.len() as u64).to_le_bytes());
    authenticator.update(&lengths);
    authenticator.finish()
}

/// The key stream of one message. The library wipes its state when it is dropped.
struct KeyStream(ChaCha20Rng);

impl KeyStream {
    fn new(key: &[u8; 32], nonce: [u8; NONCE_LEN]) -> Self {
        let [a, b, c, d, stream @ ..] = nonce;
        let mut rng = ChaCha20Rng::from_seed(*key);
        // In this order: setting the nonce resets the counter.
        rng.set_stream(u64::from_le_bytes(stream));
        rng.set_block_pos(u64::from(u32::from_le_bytes([a, b, c, d])) << 32);
        Self(rng)
    }

    fn apply(&mut self, text: &mut [u8]) {
        let mut keys = Zeroizing::new([0; CHUNK]);
        for chunk in text.chunks_mut(CHUNK) {
            let keys = &mut keys[..chunk.len()];
            self.0.fill_bytes(keys);
            chunk.iter_mut().zip(keys).for_each(|(byte, key)| *byte ^= *key);
        }
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
