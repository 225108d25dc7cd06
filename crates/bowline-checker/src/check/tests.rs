//! One history per anomaly, and valid ones that look similar.

mod owners;
mod tokens;
mod tools;

use super::check;
use crate::anomaly::{Alteration, Anomaly, Kind, Loss, Order, Repeat, Unasked};
use crate::history::{
    Ask, Attachment, Entry, EntryKind, History, Log, Outcome, Received, Route, Status,
};

const S: &str = "session";

fn entry(seq: u64, turn: u64, kind: EntryKind, content: &str) -> Entry {
    Entry {
        seq,
        turn_id: format!("t{turn}"),
        kind,
        content: content.into(),
        status: Status::Complete,
        tethered: kind != EntryKind::Message,
        tools: Vec::new(),
    }
}

/// Question and answer of turn `n`, at positions `2n - 1` and `2n`.
fn pair(n: u64) -> [Entry; 2] {
    [
        entry(2 * n - 1, n, EntryKind::Message, &format!("q{n}")),
        entry(2 * n, n, EntryKind::Turn, &format!("a{n}")),
    ]
}

fn log(turns: u64) -> Log {
    Log { entries: (1..=turns).flat_map(pair).collect(), drained: false }
}

fn answered(n: u64) -> Outcome {
    Outcome::Answered { seq: 2 * n, turn_id: format!("t{n}"), content: format!("a{n}") }
}

fn ask(history: &mut History, n: u64, outcome: Outcome) -> Ask {
    let ask = history.asked(1, S, &format!("q{n}"));
    history.told(ask, outcome);
    ask
}

/// `turns` requests, all answered, all in the log.
fn good(turns: u64) -> History {
    let mut history = History::default();
    for n in 1..=turns {
        ask(&mut history, n, answered(n));
    }
    history.ended(S, log(turns));
    history
}

fn attach(history: &mut History) -> Attachment {
    let attachment = history.attaching(S);
    history.attached(attachment);
    attachment
}

fn receive(history: &mut History, attachment: Attachment, n: u64) {
    let (turn_id, content) = (format!("t{n}"), format!("a{n}"));
    history.received(attachment, Received { seq: 2 * n, turn_id, content, route: Route::Tether });
}

fn kinds(history: &History) -> Vec<Kind> {
    let mut kinds: Vec<_> = check(history).iter().map(Anomaly::kind).collect();
    kinds.dedup();
    kinds
}

fn entries(history: &mut History) -> &mut Vec<Entry> {
    &mut history.logs.get_mut(S).unwrap().entries
}

#[test]
fn a_history_in_order_has_no_anomaly() {
    let mut history = good(3);
    let surface = attach(&mut history);
    (1..=3).for_each(|n| receive(&mut history, surface, n));
    history.confirmed(surface, 6);
    history.logs.get_mut(S).unwrap().drained = true;
    assert_eq!(check(&history), []);
}

#[test]
fn lost_what_was_answered_or_accepted_is_not_in_the_log() {
    for outcome in [answered(3), Outcome::Accepted { turn_id: "t3".into() }] {
        let mut history = good(2);
        ask(&mut history, 3, outcome);
        let (session, turn_id) = (S.to_owned(), "t3".to_owned());
        assert_eq!(check(&history), [Anomaly::Lost { session, turn_id, loss: Loss::NotInLog }]);
    }
    let mut history = good(2);
    history.logs.clear();
    assert_eq!(kinds(&history), [Kind::Lost], "a session that is gone");
}

#[test]
fn an_unknown_outcome_may_be_there_once_or_not_at_all() {
    let mut absent = good(2);
    ask(&mut absent, 3, Outcome::Unknown);
    let mut present = absent.clone();
    entries(&mut present).extend(pair(3));
    let mut twice = present.clone();
    entries(&mut twice)
        .extend([entry(7, 4, EntryKind::Message, "q3"), entry(8, 4, EntryKind::Turn, "a3")]);
    assert_eq!((check(&absent), check(&present)), (vec![], vec![]));
    let repeat = Repeat::AnsweredAgain { text: "q3".into() };
    let (session, turn_id) = (S.to_owned(), "t4".to_owned());
    assert_eq!(check(&twice), [Anomaly::Duplicate { session, turn_id, repeat }]);
}

#[test]
fn lost_a_hole_in_the_log() {
    let mut history = good(2);
    ask(&mut history, 4, Outcome::Unknown);
    entries(&mut history).extend(pair(4));
    let (session, turn_id) = (S.to_owned(), "t4".to_owned());
    assert_eq!(check(&history), [Anomaly::Lost { session, turn_id, loss: Loss::Hole { seq: 5 } }]);
}

#[test]
fn lost_a_message_without_its_answer() {
    let mut history = good(2);
    ask(&mut history, 3, Outcome::Unknown);
    entries(&mut history).push(pair(3)[0].clone());
    let loss = Loss::Unanswered { seq: 5 };
    let (session, turn_id) = (S.to_owned(), "t3".to_owned());
    assert_eq!(check(&history), [Anomaly::Lost { session, turn_id, loss }]);
}

#[test]
fn lost_a_turn_that_no_surface_got_although_all_is_delivered() {
    let mut history = good(3);
    let surface = attach(&mut history);
    (1..=2).for_each(|n| receive(&mut history, surface, n));
    assert_eq!(check(&history), [], "it may still come");
    history.logs.get_mut(S).unwrap().drained = true;
    let loss = Loss::NeverDelivered { seq: 6 };
    let (session, turn_id) = (S.to_owned(), "t3".to_owned());
    assert_eq!(check(&history), [Anomaly::Lost { session, turn_id, loss }]);
}

#[test]
fn lost_a_turn_that_a_surface_was_sent_past() {
    let mut history = good(3);
    let surface = attach(&mut history);
    receive(&mut history, surface, 1);
    receive(&mut history, surface, 3);
    let loss = Loss::Skipped { attachment: surface, seq: 4, at: 6 };
    let (session, turn_id) = (S.to_owned(), "t2".to_owned());
    assert_eq!(check(&history), [Anomaly::Lost { session, turn_id, loss }]);
}

#[test]
fn what_an_earlier_surface_got_need_not_come_again() {
    let mut history = good(3);
    let first = attach(&mut history);
    (1..=2).for_each(|n| receive(&mut history, first, n));
    let second = attach(&mut history);
    receive(&mut history, second, 3);
    history.logs.get_mut(S).unwrap().drained = true;
    assert_eq!(check(&history), []);
}

#[test]
fn reordered_a_turn_before_one_that_was_answered_before_it_was_asked() {
    let mut history = good(0);
    ask(&mut history, 2, answered(2));
    ask(&mut history, 1, answered(1));
    history.ended(S, log(2));
    let order = Order::BeforeAnEarlierOne { after: 4, stored: 2 };
    let (session, turn_id) = (S.to_owned(), "t1".to_owned());
    assert_eq!(check(&history), [Anomaly::Reordered { session, turn_id, order }]);
}

#[test]
fn turns_asked_for_at_the_same_time_have_no_order() {
    let mut history = good(0);
    let (second, first) = (history.asked(1, S, "q2"), history.asked(2, S, "q1"));
    history.told(second, answered(2));
    history.told(first, answered(1));
    history.ended(S, log(2));
    assert_eq!(check(&history), []);
}

#[test]
fn reordered_a_turn_elsewhere_than_told_and_a_log_that_goes_back() {
    let mut history = good(2);
    let log = entries(&mut history);
    log.swap(1, 3);
    log.swap(0, 2);
    assert!(kinds(&history).contains(&Kind::Reordered));
    for (n, entry) in entries(&mut history).iter_mut().enumerate() {
        entry.seq = n as u64 + 1;
    }
    assert_eq!(kinds(&history), [Kind::Reordered]);
}

#[test]
fn reordered_a_surface_that_gets_a_turn_late_or_twice() {
    for late in [1, 2] {
        let mut history = good(2);
        let surface = attach(&mut history);
        for n in [1, 2, late] {
            receive(&mut history, surface, n);
        }
        let order = Order::SurfaceGoesBack { attachment: surface, after: 4, seq: 2 * late };
        let (session, turn_id) = (S.to_owned(), format!("t{late}"));
        assert_eq!(check(&history), [Anomaly::Reordered { session, turn_id, order }]);
    }
}

#[test]
fn altered_other_words_than_were_told_asked_or_delivered() {
    let mut answer = good(2);
    entries(&mut answer)[3].content = "other".into();
    let mut question = good(2);
    entries(&mut question)[2].content = "other".into();
    let mut delivered = good(2);
    let surface = attach(&mut delivered);
    receive(&mut delivered, surface, 1);
    let turn = Received {
        seq: 4,
        turn_id: "t2".into(),
        content: "a2 and more".into(),
        route: Route::Live,
    };
    delivered.received(surface, turn);
    let of = |history: &History| match check(history).swap_remove(0) {
        Anomaly::Altered { alteration, .. } => alteration,
        other => panic!("{other:?}"),
    };
    assert_eq!(of(&answer), Alteration::Answer { told: "a2".into(), stored: "other".into() });
    assert_eq!(of(&question), Alteration::Question { asked: "q2".into(), stored: "other".into() });
    let (got, stored) = ("a2 and more".into(), "a2".into());
    assert_eq!(of(&delivered), Alteration::Delivered { attachment: surface, got, stored });
}

#[test]
fn phantom_a_turn_that_nobody_asked_for_or_that_was_refused() {
    let mut history = good(2);
    entries(&mut history).extend(pair(3));
    let of = |history: &History| match &check(history)[..] {
        [Anomaly::Phantom { unasked, .. }] => unasked.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(of(&history), Unasked::NeverAsked { text: "q3".into() });
    let refused = ask(&mut history, 3, Outcome::Refused);
    assert_eq!(of(&history), Unasked::Refused { text: "q3".into() });
    history.told(refused, Outcome::Unknown);
    assert_eq!(check(&history), [], "another attempt may have been stored");
}

#[test]
fn phantom_a_turn_that_is_cancelled_although_nobody_cancels() {
    let mut history = good(2);
    entries(&mut history)[3].status = Status::Cancelled;
    let (session, turn_id) = (S.to_owned(), "t2".to_owned());
    let unasked = Unasked::NotCancelled { seq: 4 };
    assert_eq!(check(&history), [Anomaly::Phantom { session, turn_id, unasked }]);
    history.cancelling("another");
    assert_eq!(kinds(&history), [Kind::Phantom]);
    history.cancelling(S);
    assert_eq!(check(&history), []);
}

#[test]
fn phantom_a_surface_gets_what_is_not_in_the_log() {
    let mut history = good(1);
    let surface = attach(&mut history);
    for n in [1, 2] {
        receive(&mut history, surface, n);
    }
    let unasked = Unasked::NotInLog { attachment: surface, seq: 4 };
    let (session, turn_id) = (S.to_owned(), "t2".to_owned());
    assert_eq!(check(&history), [Anomaly::Phantom { session, turn_id, unasked }]);
}

#[test]
fn a_turn_that_was_interrupted_may_be_run_anew_but_ends_only_once() {
    let mut history = good(1);
    let twice = ask(&mut history, 2, Outcome::Unknown);
    let mut note = entry(4, 2, EntryKind::Note, "given up");
    note.status = Status::Interrupted;
    // The message is stored already, so only its answer is appended.
    entries(&mut history).extend([pair(2)[0].clone(), note, entry(5, 3, EntryKind::Turn, "a2")]);
    let told = Outcome::Answered { seq: 5, turn_id: "t3".into(), content: "a2".into() };
    history.told(twice, told);
    assert_eq!(check(&history), []);
    entries(&mut history)[4].turn_id = "t2".into();
    assert!(kinds(&history).contains(&Kind::Duplicate), "t2 ended twice");
}

#[test]
fn duplicate_a_turn_that_comes_again_after_it_was_confirmed() {
    let mut history = good(2);
    let first = attach(&mut history);
    for n in [1, 2] {
        receive(&mut history, first, n);
    }
    history.confirmed(first, 2);
    let second = attach(&mut history);
    receive(&mut history, second, 2);
    assert_eq!(check(&history), [], "turn 2 was not confirmed");
    let third = attach(&mut history);
    receive(&mut history, third, 1);
    let repeat = Repeat::AfterConfirmed { attachment: third, seq: 2, confirmed: 2 };
    let (session, turn_id) = (S.to_owned(), "t1".to_owned());
    assert_eq!(check(&history), [Anomaly::Duplicate { session, turn_id, repeat }]);
}

#[test]
fn a_confirmation_counts_only_from_the_newest_attachment() {
    // The other attach is pending all the time: it may already have replaced the first.
    let attempts: [fn(&mut History) -> Attachment; 2] = [
        |history| {
            history.attaching(S);
            attach(history)
        },
        |history| {
            let first = attach(history);
            history.attaching(S);
            first
        },
    ];
    for attempt in attempts {
        let mut history = good(1);
        let surface = attempt(&mut history);
        receive(&mut history, surface, 1);
        history.confirmed(surface, 2);
        let next = attach(&mut history);
        receive(&mut history, next, 1);
        assert_eq!(check(&history), []);
    }
    let mut history = good(1);
    history.attaching(S);
    history.restarted();
    let surface = attach(&mut history);
    receive(&mut history, surface, 1);
    history.confirmed(surface, 2);
    let next = attach(&mut history);
    receive(&mut history, next, 1);
    assert_eq!(kinds(&history), [Kind::Duplicate], "a restart ends what was being made");
}
