//! Some thousands of the inputs that `make fuzz` makes millions of: the fuzzer's seeds, damaged.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

#[path = "../../../../../fuzz/relay_properties.rs"]
mod properties;

/// What random bytes alone would hardly ever hit upon.
const WORDS: [&str; 16] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\ud800",
    "\\u0000",
    "null",
    "true",
    "=",
    "+/",
    "é",
    "\"apiKey\":\"k\"",
    "\"daemonId\":\"d\",",
];

fn seeds() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/control_body");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[derive(Debug, Clone)]
enum Damage {
    Word(Index, Index),
    Cut(Index, Index),
    Byte(Index, u8),
}

impl Damage {
    fn inflict(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Word(at, word) => {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, WORDS[word.index(WORDS.len())].bytes());
            }
            Self::Cut(from, length) => {
                let from = from.index(bytes.len() + 1);
                let to = (from + length.index(4)).min(bytes.len());
                bytes.drain(from..to);
            }
            Self::Byte(at, byte) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Self::Byte(..) => {}
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<Index>(), any::<Index>()).prop_map(|(at, word)| Damage::Word(at, word)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, length)| Damage::Cut(from, length)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
    ]
}

#[test]
fn every_seed_is_taken() {
    let seeds = seeds();
    assert!(seeds.len() >= 3);
    assert!(seeds.iter().all(|seed| properties::control_body(seed)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn any_body_is_refused_or_says_something_within_bounds(
        seed in any::<Index>(),
        damages in prop::collection::vec(damage(), 0..4),
    ) {
        let seeds = seeds();
        let mut bytes = seeds[seed.index(seeds.len())].clone();
        damages.iter().for_each(|damage| damage.inflict(&mut bytes));
        properties::control_body(&bytes);
    }
}
