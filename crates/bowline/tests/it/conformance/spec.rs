//! The requirements that `docs/spec/` defines.
//!
//! A definition is an item of a list: the id, `(*ours*)` if the whole of it is ours, the requirement in
//! short and in bold, then all of it. An id anywhere else is a mention.

use std::collections::BTreeSet;

use super::root;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requirement {
    pub(super) id: String,
    /// As `docs/conformance.md` has it in its second column.
    pub(super) short: String,
    /// No part of the protocol, and so of none of its levels.
    pub(super) ours: bool,
}

fn texts() -> [String; 2] {
    ["docs/spec/sbp.md", "docs/spec/sbrp.md"]
        .map(|file| std::fs::read_to_string(root().join(file)).unwrap())
}

pub(super) fn requirements() -> Vec<Requirement> {
    texts().iter().flat_map(|text| text.lines().filter_map(requirement)).collect()
}

/// Each requirement's id, and the line that defines it.
pub(super) fn lines() -> Vec<(String, String)> {
    let of = |line: &str| Some((requirement(line)?.id, line.to_owned()));
    texts().iter().flat_map(|text| text.lines().filter_map(of)).collect()
}

fn is_id(word: &str) -> bool {
    let parts: Vec<_> = word.split('-').collect();
    matches!(parts[..], ["SBP" | "SBRP", _, number]
        if number.len() == 2 && number.bytes().all(|b| b.is_ascii_digit()))
}

fn requirement(line: &str) -> Option<Requirement> {
    let numbered = || line.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(". ");
    let item = line.strip_prefix("- ").or_else(numbered)?;
    let (id, rest) = item.split_once(' ').filter(|(word, _)| is_id(word))?;
    let (rest, ours) = rest.strip_prefix("(*ours*) ").map_or((rest, false), |rest| (rest, true));
    let short = rest.strip_prefix("**").and_then(|rest| rest.split_once(".** "));
    let (short, whole) = short.unwrap_or_else(|| panic!("{id}: no **short text.** after the id"));
    assert!(!short.is_empty() && !whole.is_empty() && !short.contains('|'), "{id}: {short}");
    Some(Requirement { id: id.into(), short: short.into(), ours })
}

fn mentions(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).filter(|w| is_id(w)).collect()
}

#[test]
fn a_requirement_begins_with_its_short_text() {
    let is = |line, id: &str, short: &str, ours| {
        let expected = Requirement { id: id.into(), short: short.into(), ours };
        assert_eq!(requirement(line), Some(expected));
    };
    is("- SBP-L1-03 **Look at it.** `GET` → status", "SBP-L1-03", "Look at it", false);
    is("12. SBRP-TOKEN-02 **`typ`.** Equal", "SBRP-TOKEN-02", "`typ`", false);
    is("- SBP-L3-16 (*ours*) **Signed.** Over (*ours*) it", "SBP-L3-16", "Signed", true);
    for mention in ["As SBP-L2-15 **says.** x", "- as SBP-L2-15 **says.** x", "| a | SBP-L2-15 |"] {
        assert_eq!(requirement(mention), None);
    }
    assert_eq!(mentions("as SBP-L2-15, (SBP-L2-16) and SBP-L2"), ["SBP-L2-15", "SBP-L2-16"].into());
}

#[test]
fn an_id_is_defined_once_and_no_other_is_mentioned() {
    let mut defined = BTreeSet::new();
    for Requirement { id, .. } in requirements() {
        assert!(defined.insert(id.clone()), "{id} is defined twice");
    }
    let texts = texts();
    for id in texts.iter().flat_map(|text| mentions(text)) {
        assert!(defined.contains(id), "{id} is mentioned and not defined");
    }
}
