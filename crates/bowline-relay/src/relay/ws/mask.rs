//! Masked payloads: clients xor every byte with one byte of a four-byte key (5.3).

use bowline_sbrp::frame::HEADER_LEN;

/// A payload that is still masked, as a slice of the read buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Masked<'a> {
    /// The frame: its head, if there is one, and the payload.
    frame: &'a [u8],
    head: usize,
    key: [u8; 4],
}

/// The length of the masking key, which a server's head does not have.
const KEY: usize = 4;

impl<'a> Masked<'a> {
    /// The payload of a client's frame, whose head has `head` bytes and was checked.
    #[inline]
    pub(crate) fn framed(frame: &'a [u8], head: usize, key: [u8; 4]) -> Self {
        Self { frame, head, key }
    }

    pub(crate) fn new(bytes: &'a [u8], key: [u8; 4]) -> Self {
        Self { frame: bytes, head: 0, key }
    }

    /// A payload that is already unmasked: xor with a zero key changes nothing.
    pub(crate) fn plain(bytes: &'a [u8]) -> Self {
        Self::new(bytes, [0; 4])
    }

    #[inline]
    fn bytes(&self) -> &'a [u8] {
        &self.frame[self.head..]
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.frame.len() - self.head
    }

    /// The first bytes, unmasked, and their number: at most the length of a protocol header.
    #[inline(always)]
    pub(crate) fn start(&self) -> ([u8; HEADER_LEN], usize) {
        let mut start = [0; HEADER_LEN];
        let bytes = self.bytes();
        if let Some(head) = bytes.first_chunk::<HEADER_LEN>() {
            // Unmasks two overlapping words instead of thirteen single bytes.
            let [a, b, c, d] = self.key;
            let &[h0, h1, h2, h3, h4, h5, h6, h7, h8, h9, h10, h11, h12] = head;
            let first = u64::from_ne_bytes([h0, h1, h2, h3, h4, h5, h6, h7])
                ^ u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
            let last = u64::from_ne_bytes([h5, h6, h7, h8, h9, h10, h11, h12])
                ^ u64::from_ne_bytes([b, c, d, a, b, c, d, a]);
            start[..8].copy_from_slice(&first.to_ne_bytes());
            start[HEADER_LEN - 8..].copy_from_slice(&last.to_ne_bytes());
            return (start, HEADER_LEN);
        }
        start[..bytes.len()].copy_from_slice(bytes);
        unmask(&mut start[..bytes.len()], self.key);
        (start, bytes.len())
    }

    /// Appends the payload, unmasked: the only time that it is copied.
    #[inline]
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        append(self.bytes(), self.key, out);
    }

    /// Appends the whole frame as a server sends it: the client's head without the key and the mask
    /// bit, then the unmasked payload. False if there is no head.
    #[inline(always)]
    pub(crate) fn append_frame_to(&self, out: &mut Vec<u8>) -> bool {
        let Some(head) = self.head.checked_sub(KEY).filter(|head| *head >= 2) else {
            return false;
        };
        let from = out.len();
        // Head and first piece in one copy: most messages are no longer than that.
        let (first, rest) = self.bytes().split_at(self.len().min(PIECE));
        out.extend_from_slice(&self.frame[KEY..self.head + first.len()]);
        let (written, payload) = out[from..].split_at_mut(head);
        written.copy_from_slice(&self.frame[..head]);
        written[1] &= 0x7f;
        unmask(payload, self.key);
        append(rest, self.key, out);
        true
    }
}

/// The number of bytes copied and unmasked at a time, while they are in the L1 cache; a multiple of
/// the key's length.
const PIECE: usize = 4 << 10;

/// Appends bytes, unmasked, starting with the first byte of the key.
#[inline]
fn append(bytes: &[u8], key: [u8; 4], out: &mut Vec<u8>) {
    for piece in bytes.chunks(PIECE) {
        let from = out.len();
        out.extend_from_slice(piece);
        unmask(&mut out[from..], key);
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
