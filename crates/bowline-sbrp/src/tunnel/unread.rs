//! What a stream has received and its program has not read.
//!
//! Separate, because credit counts bytes and memory does not: a record of one byte costs about a
//! hundred. Small records are joined, so that a peer that sends its credit byte by byte takes no more
//! memory than one that sends it at once.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Records below this are copied; others are kept as they came.
const SMALL: usize = 1024;
/// How much is joined.
const JOINED: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Unread {
    whole: VecDeque<Bytes>,
    /// Small records, after all that is in `whole`.
    joined: BytesMut,
}

impl Unread {
    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.joined.is_empty()
    }

    pub(super) fn push(&mut self, bytes: Bytes) {
        if bytes.len() < SMALL {
            if self.joined.len() + bytes.len() > JOINED {
                self.close_joined();
            }
            self.joined.extend_from_slice(&bytes);
        } else {
            self.close_joined();
            self.whole.push_back(bytes);
        }
    }

    /// At most so many bytes; `None` if there are none.
    pub(super) fn pop(&mut self, most: usize) -> Option<Bytes> {
        if self.whole.is_empty() {
            self.close_joined();
        }
        let first = self.whole.front_mut()?;
        let bytes = first.split_to(most.min(first.len()));
        if first.is_empty() {
            self.whole.pop_front();
        }
        Some(bytes)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn close_joined(&mut self) {
        if !self.joined.is_empty() {
            self.whole.push_back(std::mem::take(&mut self.joined).freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_records_are_joined_and_large_ones_are_not_copied() {
        let mut unread = Unread::default();
        for _ in 0..10_000 {
            unread.push(Bytes::from_static(b"x"));
        }
        assert_eq!((unread.whole.len(), unread.joined.len()), (2, 10_000 - 2 * JOINED));
        let large = Bytes::from(vec![b'y'; SMALL]);
        unread.push(large.clone());
        unread.push(Bytes::from_static(b"z"));
        let mut all = Vec::new();
        let mut kept = false;
        while let Some(bytes) = unread.pop(usize::MAX) {
            kept |= bytes.as_ptr() == large.as_ptr();
            all.extend_from_slice(&bytes);
        }
        assert!(kept && unread.is_empty());
        assert_eq!(all, [&[b'x'; 10_000][..], &[b'y'; SMALL], b"z"].concat());
    }

    #[test]
    fn parts_are_read_in_order_and_never_empty() {
        let mut unread = Unread::default();
        unread.push(Bytes::from_static(b"abc"));
        assert_eq!(unread.pop(2).unwrap(), "ab");
        unread.push(Bytes::from_static(b"d"));
        assert_eq!(unread.pop(9).unwrap(), "c");
        assert_eq!(unread.pop(9).unwrap(), "d");
        assert_eq!(unread.pop(9), None);
        unread.push(Bytes::from_static(b"e"));
        unread.clear();
        assert!(unread.is_empty());
    }
}
