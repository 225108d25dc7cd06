//! `docs/conformance.md` tells the truth: every requirement is there, in the words of `docs/spec/`, and
//! names tests that exist.
//!
//! `BLESS=1 cargo test -p bowline --all-features --test it conformance` writes the words, the tests
//! and the claims anew.

mod claims;
mod kinds;
mod seen;
mod spec;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use spec::requirements;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The name of every test in the workspace: functions that are marked as tests, and those that a
/// list of behaviours (`backends!`) runs. Helpers do not count.
fn test_names() -> BTreeSet<String> {
    fn visit(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                visit(&path, names);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                names.extend(tests_in(&std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut names = BTreeSet::new();
    visit(&root().join("crates"), &mut names);
    names
}

fn tests_in(text: &str) -> BTreeSet<String> {
    let (mut names, mut marked, mut listing) = (BTreeSet::new(), false, false);
    for line in text.lines().map(str::trim) {
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        if let Some(rest) = function {
            if std::mem::take(&mut marked) {
                names.extend(rest.split('(').next().map(str::to_owned));
            }
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if line.starts_with("backends! {") {
            listing = true;
        } else if line == "}" {
            listing = false;
        } else if listing {
            names.insert(line.to_owned());
        }
    }
    names
}

#[test]
fn g22_each_row_of_what_can_be_done_on_the_way_names_its_test() {
    let names = test_names();
    let page = std::fs::read_to_string(root().join("docs/relay.md")).unwrap();
    let table = page.split("## What each of them can do").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 12, "{rows:?}");
    for row in rows {
        let test = row.trim_end_matches(" |").rsplit("| ").next().unwrap().trim_matches('`');
        assert!(names.contains(test), "{test} is no test: {row}");
    }
}

#[test]
fn only_tests_count_as_tests() {
    let text = "backends! {\n    g1_a\n}\n\nasync fn g1_a(store: S) {}\n\nfn g2_helper() {}\n\n\
                #[test]\nfn g3_b() {}\n\n#[tokio::test(start_paused = true)]\n\
                #[cfg(unix)]\nasync fn g4_c() {}\n";
    assert_eq!(tests_in(text), ["g1_a", "g3_b", "g4_c"].map(str::to_owned).into());
}

/// The promises of `docs/guarantees.md`.
const PROMISES: std::ops::RangeInclusive<u8> = 1..=23;

/// All requirement ids: those of the specification texts, and those of `docs/guarantees.md`.
fn required() -> BTreeSet<String> {
    let promises = PROMISES.map(|n| format!("G{n}"));
    requirements().into_iter().map(|requirement| requirement.id).chain(promises).collect()
}

/// The tests whose names begin with the id, alone or among others.
fn tests_of(id: &str, names: &BTreeSet<String>) -> Vec<String> {
    names.iter().filter(|name| ids_of(name).contains(&id.to_owned())).cloned().collect()
}

/// The ids that a test's name begins with: `sbrp_crypto_07_08_client_03_…` has three, `g2_g3_…`
/// two.
fn ids_of(name: &str) -> Vec<String> {
    let is_number = |word: &str| word.len() == 2 && word.bytes().all(|b| b.is_ascii_digit());
    let mut words = name.split('_').peekable();
    let mut ids = Vec::new();
    let Some(protocol @ ("sbp" | "sbrp")) = words.peek().copied() else {
        let promise = |word: &&str| word.strip_prefix('g').is_some_and(|n| n.parse::<u8>().is_ok());
        return words.take_while(promise).map(str::to_uppercase).collect();
    };
    words.next();
    while let Some(group) = words.next() {
        if !words.peek().is_some_and(|word| is_number(word)) {
            break;
        }
        let mut last = 0;
        while let Some(word) = words.next_if(|word| is_number(word) || *word == "to") {
            let until: u8 = match word {
                "to" => words.next().and_then(|word| word.parse().ok()).unwrap_or(last),
                number => number.parse().unwrap_or(last),
            };
            let from = if word == "to" { last + 1 } else { until };
            ids.extend((from..=until).map(|n| format!("{protocol}-{group}-{n:02}").to_uppercase()));
            last = until;
        }
    }
    ids
}

#[test]
fn a_test_may_show_several_requirements() {
    let ids = ids_of("sbrp_crypto_07_08_client_03_a_relay_07_b");
    assert_eq!(ids, ["SBRP-CRYPTO-07", "SBRP-CRYPTO-08", "SBRP-CLIENT-03"]);
    let ids = ids_of("sbrp_token_05_to_07_every_claim");
    assert_eq!(ids, ["SBRP-TOKEN-05", "SBRP-TOKEN-06", "SBRP-TOKEN-07"]);
    assert_eq!(ids_of("g2_g3_every_turn"), ["G2", "G3"]);
    assert_eq!(ids_of("sbp_l2_05_pending"), ["SBP-L2-05"]);
    assert!(ids_of("early_timer_is_ignored").is_empty());
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
struct Row<'a> {
    id: &'a str,
    what: &'a str,
    /// Whether the suite sees it from outside.
    seen: &'a str,
    tests: &'a str,
}

fn row(line: &str) -> Option<Row<'_>> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
    let (id, what) = (cells.next()?, cells.next()?);
    let row = Row { id, what, seen: cells.next()?, tests: cells.next()? };
    let is_id = id.starts_with("SBP-")
        || id.starts_with("SBRP-")
        || id.strip_prefix('G').is_some_and(|n| n.parse::<u8>().is_ok());
    is_id.then_some(row)
}

/// The prefix of a row whose tests cover only a part of the requirement: `*partial* (what is
/// missing): `.
fn partial(cell: &str) -> (&str, &str) {
    let at = cell.strip_prefix("*partial* (").and_then(|rest| rest.find("): "));
    let said = at.filter(|at| *at > 0);
    cell.split_at(said.map_or(0, |at| "*partial* (".len() + at + "): ".len()))
}

#[test]
fn a_partial_row_says_what_is_missing() {
    assert_eq!(partial("*partial* (no (good) disk): `a`"), ("*partial* (no (good) disk): ", "`a`"));
    assert_eq!(partial("`a`, `b`"), ("", "`a`, `b`"));
    assert_eq!(partial("*partial* (): `a`"), ("", "*partial* (): `a`"));
}

#[test]
fn every_test_that_the_guarantees_name_exists() {
    let text = std::fs::read_to_string(root().join("docs/guarantees.md")).unwrap();
    let names = test_names();
    let named = text.split('`').skip(1).step_by(2).filter(|word| {
        word.matches('_').count() > 2
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    });
    let unknown: Vec<_> = named.filter(|word| !names.contains(*word)).collect();
    assert_eq!(unknown, [""; 0]);
    for promise in PROMISES {
        let heading = format!("(G{promise})");
        let section = text
            .split("\n## ")
            .find(|section| section.lines().next().is_some_and(|line| line.ends_with(&heading)));
        let section = section.unwrap_or_else(|| panic!("no section for G{promise}"));
        assert!(section.contains("Shown by"), "G{promise} is shown by nothing");
    }
}

#[test]
fn every_requirement_is_listed_in_its_words_and_names_tests_that_exist() {
    let path = root().join("docs/conformance.md");
    let names = test_names();
    let expected = |id: &str| match tests_of(id, &names) {
        tests if tests.is_empty() => "open".to_owned(),
        tests => tests.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    };
    let words: BTreeMap<_, _> = requirements().into_iter().map(|one| (one.id, one.short)).collect();
    let text = std::fs::read_to_string(&path).unwrap();
    if std::env::var_os("BLESS").is_some() {
        let lines = text.lines().map(|line| match row(line) {
            Some(Row { id, what, tests, .. }) => {
                let what = words.get(id).map_or(what, String::as_str);
                let seen = seen::seen(id);
                format!("| {id} | {what} | {seen} | {}{} |", partial(tests).0, expected(id))
            }
            None => line.to_owned(),
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        std::fs::write(&path, claims::claimed(&text)).unwrap();
        return;
    }
    let rows: Vec<_> = text.lines().filter_map(row).collect();
    let listed: BTreeSet<_> = rows.iter().map(|row| row.id.to_string()).collect();
    assert_eq!(listed, required(), "the table has exactly the specification's ids");
    assert_eq!(listed.len(), rows.len(), "a requirement has one row");
    for Row { id, what, seen, tests } in rows {
        let (why, tests) = partial(tests);
        assert_eq!(seen, seen::seen(id), "{id}: run with BLESS=1 to write the table anew");
        assert_eq!(tests, expected(id), "{id}: run with BLESS=1 to write the table anew");
        assert!(why.is_empty() || tests != "open", "{id}: nothing of it is shown");
        if let Some(short) = words.get(id) {
            assert_eq!(what, short, "{id}: run with BLESS=1 to write the table anew");
        }
    }
}

#[test]
fn no_test_names_an_id_that_nobody_defined() {
    let (names, required) = (test_names(), required());
    let unknown = |name: &&String| ids_of(name).iter().any(|id| !required.contains(id));
    assert_eq!(names.iter().filter(unknown).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn levels_one_and_two_have_no_open_requirement() {
    let names = test_names();
    let open: Vec<_> = required()
        .into_iter()
        .filter(|id| id.starts_with("SBP-L1-") || id.starts_with("SBP-L2-"))
        .filter(|id| tests_of(id, &names).is_empty())
        .collect();
    assert!(open.is_empty(), "{open:?}");
}
