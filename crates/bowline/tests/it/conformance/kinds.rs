//! How much a check counts is what `docs/spec/` says of the requirement: a MUST, unless it is marked as
//! recommended, optional or ours.
//!
//! A mark names the checks that it is about by their numbers, as in `(*recommended*: 10, 10b)`; right after the id
//! of a requirement it has none, and is about all of its checks.

use std::collections::BTreeMap;

use bowline_conformance::{checks, relay_checks};

use super::spec::{lines, requirements};

/// The kind of a check, as it is marked.
fn kind(word: &str) -> &'static str {
    match word {
        "recommended" => "should",
        "optional" => "may",
        "ours" => "ours",
        other => panic!("there is no mark {other}"),
    }
}

/// The checks that the text of a requirement marks, by their ids.
fn marked(id: &str, text: &str) -> BTreeMap<String, &'static str> {
    let group = id.trim_end_matches(|c: char| c.is_ascii_digit());
    let mut marked = BTreeMap::new();
    for mark in text.split("(*").skip(1) {
        let Some((word, rest)) = mark.split_once("*: ") else { continue };
        if !word.bytes().all(|b| b.is_ascii_lowercase()) {
            continue;
        }
        let numbers = rest.split([':', ')']).next().unwrap();
        for number in numbers.split(", ") {
            let check = format!("{group}{number}");
            let again = marked.insert(check.clone(), kind(word));
            assert_eq!(again, None, "{check} is marked twice");
        }
    }
    marked
}

#[test]
fn a_mark_names_the_checks_that_it_is_about() {
    let text = "**A.** One (*ours*). Two (*ours*: 02b). Three (*recommended*: 02, 02c: because).";
    let expected = [("SBP-L1-02", "should"), ("SBP-L1-02b", "ours"), ("SBP-L1-02c", "should")];
    let expected = expected.map(|(id, kind)| (id.to_owned(), kind));
    assert_eq!(marked("SBP-L1-02", text), expected.into());
}

#[test]
fn each_check_counts_as_much_as_the_protocol_says() {
    let mut marks: BTreeMap<String, &str> = BTreeMap::new();
    for (id, line) in lines() {
        marks.extend(marked(&id, &line));
    }
    let ours: Vec<_> =
        requirements().into_iter().filter(|one| one.ours).map(|one| one.id).collect();
    for check in checks().chain(relay_checks()) {
        let whole = ours.iter().any(|id| id == check.requirement()).then_some("ours");
        let says = marks.remove(check.id).or(whole).unwrap_or("must");
        assert_eq!(check.kind.word(), says, "{}: the check, and its mark in docs/spec", check.id);
    }
    assert!(marks.is_empty(), "marked, and no checks: {marks:?}");
}
