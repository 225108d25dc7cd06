//! Poly1305 (RFC 8439, 2.5): the authenticator of ChaCha20-Poly1305, for the build without C.
//!
//! The message is a polynomial in `r`, evaluated modulo p = 2^130 − 5. Numbers are five limbs of 26
//! bits, so that every product fits 64 bits. No branch and no index depends on a secret: additions,
//! multiplications, shifts and masks only.
//!
//! Only whole blocks: the cipher that uses it pads its message to 16 bytes.

use zeroize::Zeroize as _;

const LIMB: u32 = 0x03ff_ffff;

/// The state of one message. Wiped when dropped.
pub(super) struct Poly1305 {
    /// The point of evaluation, clamped.
    r: [u32; 5],
    /// The sum so far.
    sum: [u32; 5],
    /// Added at the end, modulo 2^128.
    pad: [u32; 4],
}

impl Poly1305 {
    /// The key is for one message.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let r = [
            word(key, 0) & 0x03ff_ffff,
            (word(key, 3) >> 2) & 0x03ff_ff03,
            (word(key, 6) >> 4) & 0x03ff_c0ff,
            (word(key, 9) >> 6) & 0x03f0_3fff,
            (word(key, 12) >> 8) & 0x000f_ffff,
        ];
        let pad = [word(key, 16), word(key, 20), word(key, 24), word(key, 28)];
        Self { r, sum: [0; 5], pad }
    }

    /// sum = (sum + block + 2^128) · r mod p, up to a small multiple of p.
    pub(super) fn update(&mut self, block: &[u8; 16]) {
        let added = [
            word(block, 0) & LIMB,
            (word(block, 3) >> 2) & LIMB,
            (word(block, 6) >> 4) & LIMB,
            (word(block, 9) >> 6) & LIMB,
            (word(block, 12) >> 8) | (1 << 24),
        ];
        let h: [u64; 5] = std::array::from_fn(|i| u64::from(self.sum[i]) + u64::from(added[i]));
        let r: [u64; 5] = self.r.map(u64::from);
        // What overflows 2^130 comes back times 5.
        let [_, s1, s2, s3, s4] = r.map(|limb| limb * 5);
        let mut product = [
            h[0] * r[0] + h[1] * s4 + h[2] * s3 + h[3] * s2 + h[4] * s1,
            h[0] * r[1] + h[1] * r[0] + h[2] * s4 + h[3] * s3 + h[4] * s2,
            h[0] * r[2] + h[1] * r[1] + h[2] * r[0] + h[3] * s4 + h[4] * s3,
            h[0] * r[3] + h[1] * r[2] + h[2] * r[1] + h[3] * r[0] + h[4] * s4,
            h[0] * r[4] + h[1] * r[3] + h[2] * r[2] + h[3] * r[1] + h[4] * r[0],
        ];
        for i in 0..4 {
            product[i + 1] += product[i] >> 26;
            product[i] &= u64::from(LIMB);
        }
        product[0] += (product[4] >> 26) * 5;
        product[4] &= u64::from(LIMB);
        product[1] += product[0] >> 26;
        product[0] &= u64::from(LIMB);
        self.sum = product.map(|limb| limb as u32);
    }

    pub(super) fn finish(mut self) -> [u8; 16] {
        self.carry();
        self.subtract_p();
        // The limbs as four words of 32 bits, plus the pad, modulo 2^128.
        let h = self.sum;
        let words = [
            h[0] | (h[1] << 26),
            (h[1] >> 6) | (h[2] << 20),
            (h[2] >> 12) | (h[3] << 14),
            (h[3] >> 18) | (h[4] << 8),
        ];
        let mut tag = [0; 16];
        let mut carry = 0;
        for (i, bytes) in tag.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            carry += u64::from(words[i]) + u64::from(self.pad[i]);
            *bytes = (carry as u32).to_le_bytes();
            carry >>= 32;
        }
        tag
    }

    /// Every limb below 2^26, the sum below 2^130.
    fn carry(&mut self) {
        let h = &mut self.sum;
        for _ in 0..2 {
            for i in 0..4 {
                h[i + 1] += h[i] >> 26;
                h[i] &= LIMB;
            }
            h[0] += (h[4] >> 26) * 5;
            h[4] &= LIMB;
        }
        h[1] += h[0] >> 26;
        h[0] &= LIMB;
    }

    /// Takes sum − p if that is not negative: sum + 5 − 2^130, whose sign is the last limb's top bit.
    fn subtract_p(&mut self) {
        let mut reduced = [0u32; 5];
        let mut carry = 5;
        for (reduced, limb) in reduced.iter_mut().zip(self.sum) {
            let sum = limb + carry;
            *reduced = sum & LIMB;
            carry = sum >> 26;
        }
        // All ones if sum + 5 reached 2^130, and zero otherwise.
        let take = 0u32.wrapping_sub(carry);
        for (limb, reduced) in self.sum.iter_mut().zip(reduced) {
            *limb = (*limb & !take) | (reduced & take);
        }
    }
}

impl Drop for Poly1305 {
    fn drop(&mut self) {
        self.r.zeroize();
        self.sum.zeroize();
        self.pad.zeroize();
    }
}

fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::{to_hex, unhex};

    fn tag(key: &[u8; 32], blocks: &[[u8; 16]]) -> String {
        let mut authenticator = Poly1305::new(key);
        blocks.iter().for_each(|block| authenticator.update(block));
        to_hex(&authenticator.finish())
    }

    fn block(hex: &str) -> [u8; 16] {
        unhex(hex).try_into().unwrap()
    }

    /// Appendix A.3 of RFC 8439, those of whole blocks: all but the first are about carries and the
    /// reduction at the end.
    #[test]
    fn sbrp_crypto_01_poly1305_is_that_of_the_rfc() {
        let (zero, ones) = ([0; 16], [0xff; 16]);
        let key = |r: u8, s: [u8; 16]| {
            let mut key = [0; 32];
            key[0] = r;
            key[16..].copy_from_slice(&s);
            key
        };
        assert_eq!(tag(&key(0, zero), &[zero; 4]), "0".repeat(32));
        // 7: 2^130 − 5 is reduced.
        assert_eq!(tag(&key(2, zero), &[ones]), "03000000000000000000000000000000");
        // 8: the pad is added modulo 2^128.
        let two = block("02000000000000000000000000000000");
        assert_eq!(tag(&key(2, ones), &[two]), "03000000000000000000000000000000");
        // 9: limbs that are all ones.
        let blocks = [
            ones,
            block("f0ffffffffffffffffffffffffffffff"),
            block("11000000000000000000000000000000"),
        ];
        assert_eq!(tag(&key(1, zero), &blocks), "05000000000000000000000000000000");
        // 10: the sum is p itself.
        let blocks = [
            ones,
            block("fbfefefefefefefefefefefefefefefe"),
            block("01010101010101010101010101010101"),
        ];
        assert_eq!(tag(&key(1, zero), &blocks), "0".repeat(32));
        // 11: the sum is just below p.
        let blocks = [block("fdffffffffffffffffffffffffffffff")];
        assert_eq!(tag(&key(2, zero), &blocks), "faffffffffffffffffffffffffffffff");
        // 12 and 13: a message that reaches the upper limbs.
        let mut sparse = [0; 32];
        (sparse[0], sparse[8]) = (1, 4);
        let mut blocks = vec![
            block("e33594d7505e43b90000000000000000"),
            block("3394d7505e4379cd0100000000000000"),
            zero,
            block("01000000000000000000000000000000"),
        ];
        assert_eq!(tag(&sparse, &blocks), "14000000000000005500000000000000");
        blocks.pop();
        assert_eq!(tag(&sparse, &blocks), "13000000000000000000000000000000");
    }
}
