//! Calls of tools: in the log, by hosts, and at devices.

use super::{S, check, entry};
use crate::anomaly::{Alteration, Anomaly, Repeat, Unasked};
use crate::history::{Entry, EntryKind, History, Log, Outcome, Status, ToolResult, ToolStep};

/// The model's name for each of its calls.
const ID: &str = "call_1";

fn action(seq: u64, step: ToolStep) -> Entry {
    let mut action = entry(seq, 1, EntryKind::Action, "");
    (action.tethered, action.tools) = (false, vec![step]);
    action
}

fn called(seq: u64, input: &str) -> Entry {
    action(seq, ToolStep::Called { id: ID.into(), input: input.into() })
}

fn ended(seq: u64, result: ToolResult) -> Entry {
    action(seq, ToolStep::Ended { id: ID.into(), result })
}

fn said(text: &str) -> ToolResult {
    ToolResult::Said(text.into())
}

/// A turn that calls a device twice, which answers the first time.
fn turn() -> History {
    let mut history = History::default();
    let ask = history.asked(1, S, "q1");
    history.ran(S, "in 1");
    history.returning(S, "in 1", "out 1");
    history.ran(S, "in 2");
    let told = Outcome::Answered { seq: 6, turn_id: "t1".into(), content: "a1".into() };
    history.told(ask, told);
    let entries = vec![
        entry(1, 1, EntryKind::Message, "q1"),
        called(2, "in 1"),
        ended(3, said("out 1")),
        called(4, "in 2"),
        ended(5, ToolResult::Failed),
        entry(6, 1, EntryKind::Turn, "a1"),
    ];
    history.ended(S, Log { entries, drained: false });
    history
}

fn entries(history: &mut History) -> &mut Vec<Entry> {
    &mut history.logs.get_mut(S).unwrap().entries
}

fn of_turn(turn_id: &str) -> (String, String) {
    (S.to_owned(), turn_id.to_owned())
}

#[test]
fn a_turn_whose_calls_ended_has_no_anomaly() {
    assert_eq!(check(&turn()), []);
}

#[test]
fn unended_a_call_whose_turn_ends_without_a_result() {
    let mut history = turn();
    entries(&mut history)[4].tools.clear();
    let (session, turn_id) = (S.to_owned(), Some("t1".to_owned()));
    let unended = Anomaly::Unended { session, turn_id, input: "in 2".into() };
    assert_eq!(check(&history), std::slice::from_ref(&unended));
    // The turn has not ended, either.
    entries(&mut history).truncate(5);
    assert!(check(&history).contains(&unended));
}

#[test]
fn duplicate_a_call_that_ends_twice() {
    let mut history = turn();
    entries(&mut history)[4] = ended(5, ToolResult::Failed);
    entries(&mut history)[3] = ended(4, ToolResult::Failed);
    history.events.retain(|event| !format!("{event:?}").contains("in 2"));
    let repeat = |seq| {
        let (session, turn_id) = of_turn("t1");
        Anomaly::Duplicate { session, turn_id, repeat: Repeat::CallEndedAgain { seq } }
    };
    assert_eq!(check(&history), [repeat(4), repeat(5)]);
}

#[test]
fn altered_a_result_that_the_device_did_not_give() {
    for (at, said_to_it) in [(2, Some("out 1".to_owned())), (4, None)] {
        let mut history = turn();
        entries(&mut history)[at] = ended(at as u64 + 1, said("other"));
        let input = if at == 2 { "in 1" } else { "in 2" }.to_owned();
        let alteration = Alteration::Result { input, said: said_to_it, told: "other".into() };
        let (session, turn_id) = of_turn("t1");
        assert_eq!(check(&history), [Anomaly::Altered { session, turn_id, alteration }]);
    }
}

#[test]
fn an_answer_that_was_lost_on_its_way_is_an_error() {
    let mut history = turn();
    entries(&mut history)[2] = ended(3, ToolResult::Failed);
    assert_eq!(check(&history), []);
}

#[test]
fn duplicate_a_call_that_a_device_was_asked_to_run_twice_and_phantom_one_that_nobody_made() {
    let mut history = turn();
    history.ran(S, "in 2");
    history.ran(S, "in 3");
    let (session, turn_id) = of_turn("");
    let again = Repeat::RanAgain { input: "in 2".into(), times: 2, called: 1 };
    let again =
        Anomaly::Duplicate { session: session.clone(), turn_id: turn_id.clone(), repeat: again };
    let unasked = Unasked::NotCalled { input: "in 3".into() };
    assert_eq!(check(&history), [again, Anomaly::Phantom { session, turn_id, unasked }]);
}

#[test]
fn a_call_of_a_turn_that_is_run_anew_is_another_call() {
    let mut history = History::default();
    let ask = history.asked(1, S, "q1");
    history.ran(S, "in");
    history.told(ask, Outcome::Unknown);
    history.ran(S, "in");
    let told = Outcome::Answered { seq: 7, turn_id: "t2".into(), content: "a2".into() };
    history.told(ask, told);
    let mut failed = entry(4, 1, EntryKind::Note, "it failed");
    failed.status = Status::Failed;
    let anew = |action: Entry| Entry { turn_id: "t2".into(), ..action };
    let entries = vec![
        entry(1, 1, EntryKind::Message, "q1"),
        called(2, "in"),
        ended(3, ToolResult::Failed),
        failed,
        anew(called(5, "in")),
        anew(ended(6, ToolResult::Failed)),
        entry(7, 2, EntryKind::Turn, "a2"),
    ];
    history.ended(S, Log { entries, drained: false });
    assert_eq!(check(&history), []);
}

#[test]
fn a_hosts_call_ends_with_what_the_device_said_or_an_error_or_nobody_knows() {
    for result in [Some(said("out")), Some(ToolResult::Failed), None] {
        let mut history = History::default();
        let call = history.calling(S, "in");
        history.ran(S, "in");
        history.returning(S, "in", "out");
        let unended = Anomaly::Unended { session: S.into(), turn_id: None, input: "in".into() };
        assert_eq!(check(&history), [unended]);
        history.call_ended(call, result);
        assert_eq!(check(&history), []);
    }
    let mut history = History::default();
    let call = history.calling(S, "in");
    history.call_ended(call, Some(said("out of nothing")));
    let alteration =
        Alteration::Result { input: "in".into(), said: None, told: "out of nothing".into() };
    let (session, turn_id) = of_turn("");
    assert_eq!(check(&history), [Anomaly::Altered { session, turn_id, alteration }]);
}
