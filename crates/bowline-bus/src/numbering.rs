//! Numbers on messages, so that none arrives after a later one.
//!
//! A connection that was given up may still deliver what was written to it, after its successor has
//! delivered what came later; and two ways to one inbox differ in speed. Each bus numbers what it sends,
//! and an inbox drops what comes too late. Pure.
//!
//! Invariant: of one sender and lane, an inbox returns only growing numbers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use uuid::Uuid;

/// Who sent a message, and its place among those of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    /// One bus of one process.
    pub(crate) sender: Uuid,
    pub(crate) number: u64,
}

/// A message as it comes out of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) number: Number,
    pub(crate) body: Bytes,
}

/// Numbers what one bus sends.
#[derive(Debug)]
pub(crate) struct Numbers {
    sender: Uuid,
    last: AtomicU64,
}

impl Numbers {
    pub(crate) fn new() -> Self {
        Self { sender: Uuid::new_v4(), last: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self) -> Number {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        Number { sender: self.sender, number }
    }
}

impl Number {
    /// 16 bytes of sender, 8 of number.
    pub(crate) fn encode(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(self.sender.as_bytes());
        bytes[16..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (sender, number) = bytes.split_first_chunk::<16>()?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        Some(Self { sender: Uuid::from_bytes(*sender), number })
    }
}

/// Drops late messages of one lane.
#[derive(Debug, Default)]
pub(crate) struct Latest {
    /// The latest number of each sender, and when it was taken.
    senders: HashMap<Uuid, (u64, u64)>,
    taken: u64,
}

/// Senders that are remembered; of more, the one that was silent for longest is forgotten.
const SENDERS: usize = 256;

impl Latest {
    /// Whether this message is later than all of its sender so far.
    pub(crate) fn take(&mut self, number: Number) -> bool {
        self.taken += 1;
        if let Some((latest, taken)) = self.senders.get_mut(&number.sender) {
            *taken = self.taken;
            return std::mem::replace(latest, number.number.max(*latest)) < number.number;
        }
        if self.senders.len() == SENDERS {
            let silent = self.senders.iter().min_by_key(|(_, (_, taken))| *taken);
            let silent = silent.map(|(sender, _)| *sender).unwrap_or_default();
            self.senders.remove(&silent);
        }
        self.senders.insert(number.sender, (number.number, self.taken));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(sender: u128, number: u64) -> Number {
        Number { sender: Uuid::from_u128(sender), number }
    }

    #[test]
    fn late_and_repeated_messages_are_dropped_for_each_sender() {
        let mut latest = Latest::default();
        let taken: Vec<_> = [(1, 1), (1, 3), (2, 2), (1, 2), (1, 3), (2, 3), (1, 4)]
            .map(|(sender, at)| latest.take(number(sender, at)))
            .into();
        assert_eq!(taken, [true, true, true, false, false, true, true]);
    }

    #[test]
    fn the_sender_that_was_silent_for_longest_is_forgotten() {
        let mut latest = Latest::default();
        for sender in 0..SENDERS as u128 {
            assert!(latest.take(number(sender, 5)));
        }
        assert!(latest.take(number(0, 6)), "heard last");
        assert!(latest.take(number(1 << 64, 1)));
        assert!(!latest.take(number(0, 6)), "remembered");
        assert!(latest.take(number(1, 5)), "forgotten");
        assert_eq!(latest.senders.len(), SENDERS);
    }

    #[test]
    fn numbers_grow_and_survive_their_encoding() {
        let numbers = Numbers::new();
        let (first, second) = (numbers.next(), numbers.next());
        assert_eq!((first.sender, first.number + 1), (second.sender, second.number));
        assert_eq!(Number::decode(&second.encode()), Some(second));
        assert_eq!(Number::decode(&second.encode()[1..]), None);
        let bytes = number(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff, 258).encode();
        assert_eq!(bytes[..3], [0x00, 0x11, 0x22]);
        assert_eq!(bytes[16..], [0, 0, 0, 0, 0, 0, 1, 2]);
    }
}
