//! Tokens: one import succeeds, and what it made is what was exported.

use std::collections::BTreeMap;

use super::{S, check, good};
use crate::anomaly::{Alteration, Anomaly, Misuse};
use crate::history::{History, Import, Token};

fn made(session: &str) -> Import {
    Import::Made { session: session.into() }
}

/// A session of two turns is exported; these are the outcomes of its imports, and the sessions that are there.
fn imported(outcomes: &[Import], there: &[&str]) -> (History, Token) {
    let mut history = good(2);
    let token = history.exported(S);
    for outcome in outcomes {
        history.imported(token, outcome.clone());
    }
    let contents = ["q1", "a1", "q2", "a2", "it came from there"].map(str::to_owned).to_vec();
    let there = there.iter().map(|session| ((*session).to_owned(), contents.clone()));
    history.came_from(token, there.collect());
    (history, token)
}

fn misused(token: Token, misuse: Misuse) -> Anomaly {
    Anomaly::Misused { session: S.into(), token, misuse }
}

#[test]
fn one_success_or_an_unknown_one_or_none_yet_is_no_anomaly() {
    for (outcomes, there) in [
        (vec![made("one"), Import::Refused], vec!["one"]),
        (vec![Import::Unknown, Import::Refused], vec!["one"]),
        (vec![Import::Unknown, made("one"), made("one")], vec!["one"]),
        (vec![Import::Unknown], vec![]),
    ] {
        assert_eq!(check(&imported(&outcomes, &there).0), [], "{outcomes:?}");
    }
}

#[test]
fn misused_a_token_from_which_two_sessions_came() {
    let sessions = vec!["one".to_owned(), "two".to_owned()];
    for (outcomes, there) in [
        (vec![made("one"), made("two")], vec!["one", "two"]),
        // Nobody was told of the second one.
        (vec![made("one"), Import::Unknown], vec!["one", "two"]),
    ] {
        let (history, token) = imported(&outcomes, &there);
        let again = misused(token, Misuse::UsedAgain { sessions: sessions.clone() });
        assert_eq!(check(&history), [again]);
    }
}

#[test]
fn misused_a_token_whose_session_is_gone_or_that_nobody_used() {
    let (history, token) = imported(&[made("one")], &[]);
    assert_eq!(check(&history), [misused(token, Misuse::Gone { told: "one".into() })]);
    for outcomes in [vec![Import::Refused], vec![Import::Unknown, Import::Refused]] {
        let (history, token) = imported(&outcomes, &[]);
        assert_eq!(check(&history), [misused(token, Misuse::UsedByNobody)]);
    }
}

#[test]
fn altered_an_import_that_is_not_what_was_exported() {
    let (mut history, token) = imported(&[made("one")], &["one"]);
    let contents = history.imports.get_mut(&token).unwrap().get_mut("one").unwrap();
    contents[3] = "other".into();
    let altered = |imported: Option<&str>| {
        let (exported, imported) = ("a2".to_owned(), imported.map(str::to_owned));
        let alteration = Alteration::Imported { at: 3, exported, imported };
        Anomaly::Altered { session: "one".into(), turn_id: String::new(), alteration }
    };
    assert_eq!(check(&history), [altered(Some("other"))]);
    history.came_from(
        token,
        BTreeMap::from([("one".to_owned(), ["q1", "a1", "q2"].map(str::to_owned).to_vec())]),
    );
    assert_eq!(check(&history), [altered(None)]);
}
