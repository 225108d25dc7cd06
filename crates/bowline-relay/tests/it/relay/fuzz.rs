//! Some thousands of the inputs that `make fuzz` makes millions of: the fuzzer's seeds, damaged.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

#[path = "../../../../../fuzz/sbrp_properties.rs"]
mod properties;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Some bytes replaced by others.
type Damage = (Index, Index, Vec<u8>);

fn damaged(seeds: &[Vec<u8>], seed: Index, damages: &[Damage]) -> Vec<u8> {
    let mut bytes = seeds[seed.index(seeds.len())].clone();
    for (from, length, by) in damages {
        let from = from.index(bytes.len() + 1);
        let to = (from + length.index(4)).min(bytes.len());
        bytes.splice(from..to, by.iter().copied());
    }
    bytes
}

/// Any bytes, and those that mean something in a frame or in claims.
fn damage() -> impl Strategy<Value = Damage> {
    let words = [
        &b"\x82\x80"[..],
        b"\x02\x83",
        b"\x80\xfe",
        b"\x82\xff",
        b"\x00\x00\x00\x00",
        b"\x03",
        b"null",
        b"1e400",
        b"[]",
        b"\"\"",
        b"\\u0000",
        b".",
    ];
    let by = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..4),
        any::<Index>().prop_map(move |word| words[word.index(words.len())].to_vec()),
    ];
    (any::<Index>(), any::<Index>(), by)
}

#[test]
fn every_seed_is_taken() {
    let (frames, tokens) = (seeds("sbrp_frame"), seeds("sbrp_token"));
    assert!(frames.len() >= 5 && tokens.len() >= 3);
    assert!(frames.iter().all(|seed| properties::sbrp_frame(seed)));
    assert!(tokens.iter().all(|seed| properties::sbrp_token(seed)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn sbrp_relay_05_any_bytes_mean_the_same_in_one_piece_and_in_many(
        seed in any::<Index>(),
        how in any::<u8>(),
        damages in prop::collection::vec(damage(), 0..4),
    ) {
        let mut bytes = damaged(&seeds("sbrp_frame"), seed, &damages);
        if let Some(first) = bytes.first_mut() {
            *first ^= how & 0xfe;
        }
        properties::sbrp_frame(&bytes);
    }
}

proptest! {
    // Each is signed and verified several times.
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn sbrp_token_01_any_token_is_refused_or_says_what_its_admission_says(
        seed in any::<Index>(),
        damages in prop::collection::vec(damage(), 0..3),
    ) {
        properties::sbrp_token(&damaged(&seeds("sbrp_token"), seed, &damages));
    }
}
