//! Payloads as clients send them: every byte xored with one of four (5.3).

use bowline_sbrp::frame::HEADER_LEN;

/// A payload that is still masked, where it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Masked<'a> {
    bytes: &'a [u8],
    key: [u8; 4],
}

impl<'a> Masked<'a> {
    pub(crate) fn new(bytes: &'a [u8], key: [u8; 4]) -> Self {
        Self { bytes, key }
    }

    /// A payload that was unmasked already: xoring with nothing changes nothing.
    pub(crate) fn plain(bytes: &'a [u8]) -> Self {
        Self { bytes, key: [0; 4] }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The first bytes, unmasked, and how many there are: up to a protocol header.
    #[inline]
    pub(crate) fn start(&self) -> ([u8; HEADER_LEN], usize) {
        let mut start = [0; HEADER_LEN];
        if let Some(head) = self.bytes.first_chunk::<HEADER_LEN>() {
            let [a, b, c, d] = self.key;
            let key = [a, b, c, d, a, b, c, d, a, b, c, d, a];
            for (byte, (masked, key)) in start.iter_mut().zip(head.iter().zip(key)) {
                *byte = masked ^ key;
            }
            return (start, HEADER_LEN);
        }
        start[..self.bytes.len()].copy_from_slice(self.bytes);
        unmask(&mut start[..self.bytes.len()], self.key);
        (start, self.bytes.len())
    }

    /// Appends the payload, unmasked: the one time that it is written.
    #[inline]
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        let from = out.len();
        out.extend_from_slice(self.bytes);
        unmask(&mut out[from..], self.key);
    }
}

/// Unmasks in place, eight bytes at a time.
#[inline]
pub(crate) fn unmask(bytes: &mut [u8], key: [u8; 4]) {
    let [a, b, c, d] = key;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    if wide == 0 {
        return;
    }
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip([a, b, c, d, a, b, c]) {
        *byte ^= key;
    }
}
