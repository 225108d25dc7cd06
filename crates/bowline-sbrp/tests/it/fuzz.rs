//! Some thousands of the inputs that `make fuzz` makes millions of: the fuzzer's seeds, damaged.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

#[path = "../../../../fuzz/tunnel_properties.rs"]
mod properties;

fn seeds() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/tunnel");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Some bytes replaced by others.
type Damage = (Index, Index, Vec<u8>);

fn damaged(seed: &[u8], damages: &[Damage]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for (from, length, by) in damages {
        let from = from.index(bytes.len() + 1);
        let to = (from + length.index(4)).min(bytes.len());
        bytes.splice(from..to, by.iter().copied());
    }
    bytes
}

#[test]
fn every_seed_is_taken() {
    let seeds = seeds();
    assert!(seeds.len() >= 10);
    for (at, seed) in seeds.iter().enumerate() {
        assert!(properties::tunnel(seed), "seed {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_leave_an_end_of_a_tunnel_within_bounds(
        seed in any::<Index>(),
        damages in prop::collection::vec(
            (any::<Index>(), any::<Index>(), prop::collection::vec(any::<u8>(), 0..6)), 0..4),
    ) {
        let seeds = seeds();
        properties::tunnel(&damaged(&seeds[seed.index(seeds.len())], &damages));
    }

    #[test]
    fn g2_honest_ends_never_read_wrong_bytes_whatever_is_lost_repeated_or_late(
        script in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        properties::tunnel(&[&[5], &script[..]].concat());
    }
}
