//! The replay window: which recent sequence numbers were already received (SBRP-CRYPTO-07).
//!
//! A bitmap below the highest sequence number received: bit `i` stands for `highest − i`. Numbers
//! older than the bitmap are refused, because they may be replays. Every step has constant cost,
//! however far a number jumps.

/// Covers the last `64 × WORDS` sequence numbers; at least two words in production.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayWindow<const WORDS: usize = 2> {
    highest: Option<u64>,
    /// Least significant word first.
    seen: [u64; WORDS],
}

impl<const WORDS: usize> Default for ReplayWindow<WORDS> {
    fn default() -> Self {
        Self { highest: None, seen: [0; WORDS] }
    }
}

impl<const WORDS: usize> ReplayWindow<WORDS> {
    const SIZE: u64 = 64 * WORDS as u64;

    /// Whether this number is not recorded yet and not older than the window.
    pub fn is_fresh(&self, seq: u64) -> bool {
        match self.highest {
            Some(highest) if seq <= highest => {
                let age = highest - seq;
                age < Self::SIZE && self.seen[word(age)] & bit(age) == 0
            }
            _ => true,
        }
    }

    /// Records a fresh number after its message was authenticated.
    pub fn record(&mut self, seq: u64) {
        let age = match self.highest {
            Some(highest) if seq <= highest => highest - seq,
            Some(highest) => {
                self.age_by(seq - highest);
                self.highest = Some(seq);
                0
            }
            None => {
                self.highest = Some(seq);
                0
            }
        };
        if age < Self::SIZE {
            self.seen[word(age)] |= bit(age);
        }
    }

    /// Shifts the bitmap. A jump past the window clears it in one step: a loop over the distance
    /// would let a peer burn CPU.
    fn age_by(&mut self, steps: u64) {
        if steps >= Self::SIZE {
            self.seen = [0; WORDS];
            return;
        }
        let (words, bits) = (word(steps), steps % 64);
        for at in (0..WORDS).rev() {
            let from = |back: usize| at.checked_sub(back).map_or(0, |at| self.seen[at]);
            let carried = if bits == 0 { 0 } else { from(words + 1) >> (64 - bits) };
            self.seen[at] = from(words) << bits | carried;
        }
    }

    /// Whether `record` can lead to this state: the highest number is marked, and no number below
    /// zero is.
    pub fn is_consistent(&self) -> bool {
        match self.highest {
            None => self.seen == [0; WORDS],
            Some(highest) => {
                let marked = (0..Self::SIZE).filter(|age| self.seen[word(*age)] & bit(*age) != 0);
                self.seen[0] & 1 == 1 && marked.max().is_some_and(|oldest| oldest <= highest)
            }
        }
    }
}

fn word(age: u64) -> usize {
    (age / 64) as usize
}

fn bit(age: u64) -> u64 {
    1 << (age % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::vectors;

    fn accept<const WORDS: usize>(window: &mut ReplayWindow<WORDS>, seq: u64) -> bool {
        let fresh = window.is_fresh(seq);
        if fresh {
            window.record(seq);
        }
        assert!(window.is_consistent());
        fresh
    }

    fn replay<const WORDS: usize>(row: &Value) {
        let mut window = ReplayWindow::<WORDS>::default();
        for (at, step) in row["steps"].as_array().unwrap().iter().enumerate() {
            let accepted = accept(&mut window, vectors::number(step, "seq"));
            assert_eq!(step["accept"], accepted, "{} step {at}", row["id"]);
        }
        assert_eq!(window.highest, Some(vectors::number(row, "final_max_seen")));
        let bitmap: String = window.seen.iter().rev().map(|word| format!("{word:016x}")).collect();
        assert_eq!(bitmap, vectors::text(row, "final_bitmap_hex"), "{}", row["id"]);
    }

    #[test]
    fn sbrp_crypto_07_every_trace_of_the_vectors_ends_in_their_bitmap() {
        for row in vectors::rows("replay", 20) {
            match row["window"].as_u64().unwrap() {
                64 => replay::<1>(&row),
                128 => replay::<2>(&row),
                256 => replay::<4>(&row),
                other => panic!("a window of {other}"),
            }
        }
    }

    #[test]
    fn sbrp_daemon_05_impossible_windows_are_found() {
        let window = |highest, seen| ReplayWindow::<2> { highest, seen };
        assert!(window(None, [0, 0]).is_consistent());
        assert!(window(Some(0), [1, 0]).is_consistent());
        assert!(window(Some(64), [1, 1]).is_consistent());
        for broken in [
            window(None, [1, 0]),
            window(Some(5), [2, 0]),
            window(Some(0), [3, 0]),
            window(Some(63), [1, 1]),
        ] {
            assert!(!broken.is_consistent(), "{broken:?}");
        }
    }

    /// A reference implementation that remembers every number.
    fn plain_set(size: u64, seen: &mut BTreeSet<u64>, seq: u64) -> bool {
        let highest = seen.last().copied();
        let too_old = highest.is_some_and(|highest| seq <= highest && highest - seq >= size);
        !too_old && seen.insert(seq)
    }

    /// Numbers near a few values, so that steps of all sizes and repeats occur.
    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        let places = [0, 1_000, 1 << 32, u64::MAX - 300];
        let near = (prop::sample::select(places.to_vec()), 0..300u64)
            .prop_map(|(place, step): (u64, u64)| place + step);
        prop::collection::vec(
            prop_oneof![8 => near, 1 => any::<u64>(), 1 => Just(u64::MAX)],
            0..400,
        )
    }

    proptest! {
        #[test]
        fn sbrp_crypto_07_the_window_agrees_with_a_plain_set(numbers in numbers()) {
            let mut windows = (ReplayWindow::<1>::default(), <ReplayWindow>::default());
            let mut sets = (BTreeSet::new(), BTreeSet::new());
            for seq in numbers {
                prop_assert_eq!(accept(&mut windows.0, seq), plain_set(64, &mut sets.0, seq));
                prop_assert_eq!(accept(&mut windows.1, seq), plain_set(128, &mut sets.1, seq));
            }
        }
    }
}
