//! Owners of one session, one after the other.

use super::{S, check};
use crate::anomaly::{Anomaly, Overlap};
use crate::history::{History, OwnersWrite, Written};

fn started(attempt: u64) -> Written {
    Written::Started { turn_id: "t".into(), attempt }
}

fn answered() -> Written {
    Written::Answered { turn_id: "t".into() }
}

fn written(writes: impl IntoIterator<Item = (&'static str, u64, Written)>) -> History {
    let mut history = History::default();
    for (owner, fence, what) in writes {
        history.wrote(OwnersWrite { session: S.into(), owner: owner.into(), fence, what });
    }
    history
}

fn overlaps(history: &History) -> Vec<Overlap> {
    let overlap = |anomaly| match anomaly {
        Anomaly::Overlapping { overlap, .. } => overlap,
        other => panic!("{other:?}"),
    };
    check(history).into_iter().map(overlap).collect()
}

#[test]
fn owners_that_follow_each_other_have_no_anomaly() {
    let history = written([
        ("a", 1, Written::Session),
        ("a", 1, started(1)),
        ("b", 2, started(2)),
        ("a", 3, started(3)),
        ("a", 3, answered()),
        ("a", 3, Written::Session),
    ]);
    assert_eq!(overlaps(&history), []);
    let at_once = written([("a", 1, Written::Session), ("a", 1, answered())]);
    assert_eq!(overlaps(&at_once), [], "it was over before it was written down");
}

#[test]
fn overlapping_an_owner_that_writes_after_a_later_one() {
    for late in [Written::Session, started(3), answered()] {
        let history = written([("a", 1, started(1)), ("b", 2, started(2)), ("a", 1, late)]);
        assert_eq!(overlaps(&history), [Overlap::FenceGoesBack { after: 2, fence: 1 }]);
    }
}

#[test]
fn overlapping_two_replicas_that_are_the_same_owner() {
    let history = written([("a", 1, started(1)), ("b", 1, answered())]);
    let owners = ["a", "b"].map(str::to_owned);
    assert_eq!(overlaps(&history), [Overlap::FenceShared { fence: 1, owners }]);
}

#[test]
fn overlapping_an_attempt_that_is_started_twice() {
    let history = written([("a", 1, started(1)), ("b", 2, started(1)), ("b", 2, answered())]);
    let again = Overlap::StartedAgain { turn_id: "t".into(), attempt: 1 };
    assert_eq!(overlaps(&history), [again]);
}

#[test]
fn overlapping_an_answer_of_an_owner_that_did_not_run_the_turn() {
    let history = written([("a", 1, started(1)), ("b", 2, answered())]);
    let other = Overlap::AnsweredByAnother { turn_id: "t".into(), ran: 1, wrote: 2 };
    assert_eq!(overlaps(&history), [other]);
}
