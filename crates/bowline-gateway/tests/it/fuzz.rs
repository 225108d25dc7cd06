//! A few thousand of the inputs that `make fuzz` makes millions of.
//!
//! The properties and seed inputs are the fuzzer's. Each input is a mutated seed input; the random
//! seed is fixed, so failures are reproducible.

use std::path::Path;

use crate::garbage::Chance;

#[path = "../../../../fuzz/properties.rs"]
mod properties;

/// Inputs for each property.
const INPUTS: usize = 20_000;

/// Tokens that random bytes would hardly ever produce.
const WORDS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\ud800",
    "\\u0000",
    "null",
    "true",
    "-0",
    "1e999",
    "0.1",
    "18446744073709551616",
    "\"type\":",
    "\"sbp\":",
    "\"sbp\":{}",
    "\"role\":\"\"",
    "\"name\":",
    "\"USER_MESSAGE\"",
    "é",
    "\u{feff}",
];

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// A seed input, mutated in one to eight places.
fn damaged(seeds: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = seeds[chance.next(seeds.len())].clone();
    for _ in 0..=chance.next(8) {
        let (from, to) = (chance.next(bytes.len() + 1), chance.next(bytes.len() + 1));
        let (from, to) = (from.min(to), from.max(to));
        match chance.next(5) {
            0 => drop(bytes.splice(from..from, WORDS[chance.next(WORDS.len())].bytes())),
            1 => drop(bytes.splice(from..to.min(from + 4), [])),
            2 => drop(bytes.splice(from..from, bytes[from..to].to_vec())),
            3 => drop(bytes.splice(from..from, seeds[chance.next(seeds.len())].clone())),
            _ if from < bytes.len() => bytes[from] = chance.next(256) as u8,
            _ => {}
        }
    }
    bytes
}

/// Checks the property, and prints the input on failure.
fn holds(target: &str, property: fn(&[u8]) -> bool) {
    let seeds = seeds(target);
    assert!(seeds.iter().all(|seed| property(seed)), "a seed of {target} is refused");
    let mut chance = Chance(0xb0_1f_1e_5e_ed);
    let mut taken = 0;
    for n in 0..INPUTS {
        let input = damaged(&seeds, &mut chance);
        match std::panic::catch_unwind(|| property(&input)) {
            Ok(was_taken) => taken += usize::from(was_taken),
            Err(_) => panic!("{target}, input {n}: {:?}", String::from_utf8_lossy(&input)),
        }
    }
    assert!((INPUTS / 100..INPUTS / 2).contains(&taken), "{target}: {taken} were taken");
}

#[test]
fn any_frame_is_refused_or_written_as_it_was_read() {
    holds("frames", properties::frames);
}

#[test]
fn whatever_a_surface_says_about_itself_becomes_something_small() {
    holds("surface_context", properties::surface_context);
}

#[test]
fn sbp_l1_06_any_body_is_refused_or_goes_upstream_as_it_came_without_sbp() {
    holds("request_body", properties::request_body);
}
