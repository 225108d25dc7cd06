//! Chance that can be had again, and how long a test is.

use std::time::{SystemTime, UNIX_EPOCH};

/// A small generator (SplitMix64): the same seed gives the same choices.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// From `BOWLINE_SEED`, or fresh; says how to run the test again.
    pub(crate) fn for_test(name: &str) -> Self {
        Self::for_test_in("fire", name)
    }

    /// The same for a test of another binary.
    pub(crate) fn for_test_in(binary: &str, name: &str) -> Self {
        let given = std::env::var("BOWLINE_SEED").ok();
        let seed = match given {
            Some(text) => text.parse().expect("BOWLINE_SEED is a number"),
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into(),
        };
        let soak = if is_soak() { "BOWLINE_SOAK=1 " } else { "" };
        println!(
            "replay: BOWLINE_SEED={seed} {soak}cargo test -p bowline --test {binary} {name} -- --nocapture"
        );
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Chance of its own for a task: its choices do not depend on how tasks take turns.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// The seed of such a chance, for another process.
    pub(crate) fn fork_seed(&mut self) -> u64 {
        self.next()
    }

    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// Something to echo, of 1 to `most` words, with characters of every length.
    pub(crate) fn words(&mut self, most: usize) -> String {
        const WORDS: [&str; 8] = ["rope", "knot", "é", "海の", "🪢", "hull", "–", "tide"];
        let count = 1 + self.below(most);
        (0..count).map(|_| WORDS[self.below(WORDS.len())]).collect::<Vec<_>>().join(" ")
    }
}

pub(crate) fn is_soak() -> bool {
    std::env::var_os("BOWLINE_SOAK").is_some()
}

/// How many of something: a few, or many in a soak.
pub(crate) fn scale(short: usize, soak: usize) -> usize {
    if is_soak() { soak } else { short }
}
