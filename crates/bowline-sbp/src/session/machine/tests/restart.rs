//! From an owner that stops in good order to the next one.

use serde_json::json;

use super::calls::{approval, asking, call, calls, device, id, joining, results, runs, task};
use super::*;
use crate::access::OWNER;
use crate::approval::ApprovalState;
use crate::session::{
    AskedRow, Attach, OpenCalls, Permission, PlannedCall, Refusal, Replanned, SentCall,
};

/// The calls that were left open, by their index, and which of them were sent.
fn left(step: &Step) -> Vec<(u32, bool)> {
    let open = step.writes.iter().rev().find_map(|write| match write {
        Write::LeaveOpen { open, .. } => Some(open),
        _ => None,
    });
    let open = open.unwrap_or_else(|| panic!("nothing is left open: {step:?}"));
    open.calls.iter().map(|call| (call.n, call.sent.is_some())).collect()
}

/// An owner that stops, and its rows for the next one.
fn stopped(bench: &mut Bench) -> Loaded {
    let step = bench.fact(Fact::Stop);
    rows_after(bench, &step)
}

fn rows_after(bench: &Bench, step: &Step) -> Loaded {
    let open = step.writes.iter().rev().find_map(|write| match write {
        Write::LeaveOpen { turn, open } => Some((*turn, open.clone())),
        _ => None,
    });
    let (id, open_calls) = open.unwrap_or_else(|| panic!("nothing is left open: {step:?}"));
    assert_eq!(id, turn(1));
    let attempt = open_calls.attempt;
    let open_calls = Some(open_calls);
    let waiting = TurnRow { advanced: true, attempt, open_calls, ..row(1, Origin::Surface) };
    Loaded { turns: vec![waiting], head: bench.machine.head().clone(), ..loaded() }
}

impl Bench {
    /// The next owner, with what is planned again.
    fn next(rows: Loaded, planned: Vec<PlannedCall>) -> (Self, Step) {
        let mut bench = Self::next_before_its_plan(rows);
        let step = bench.replans(planned);
        (bench, step)
    }

    fn next_before_its_plan(rows: Loaded) -> Self {
        let (bench, step) = Self::loading(rows);
        assert_eq!(step.effects, [Effect::Replan { turn: turn(1), attempt: 2 }]);
        bench
    }

    fn replans(&mut self, calls: Vec<PlannedCall>) -> Step {
        let plan = Ok(Replanned { seq: 2, calls, rounds: 1, spent_usd: 0.0 });
        self.fact(Fact::Replanned { turn: turn(1), attempt: 2, plan })
    }
}

/// A call as it is planned again: under another id, of the same index.
fn again(number: u128, planned: PlannedCall) -> PlannedCall {
    PlannedCall { id: id(100 + number), ..planned }
}

/// A phone with a camera, whose call waits for it; `wait`: for so long after it has disconnected.
fn waiting(wait: u64) -> Bench {
    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "camera");
    bench.begin(vec![call(1, device(wait))]);
    bench
}

#[test]
fn g16_a_device_answers_the_next_owner_under_the_same_id() {
    for (name, join, wait) in
        [(Some("phone"), true, 0), (Some("phone"), false, 20), (None, false, 0)]
    {
        let attach = || Command::Attach(Attach { join, ..joining(name, "camera") });
        let mut bench = Bench::new();
        bench.command(attach());
        bench.begin(vec![call(1, device(wait))]);
        let rows = stopped(&mut bench);
        let (mut bench, step) = Bench::next(rows, vec![again(1, call(1, device(wait)))]);
        assert_eq!((results(&step), bench.shown()), (vec![], vec![]), "{name:?}: it is waited for");
        bench.command(attach());
        assert_eq!(bench.shown(), [(id(1), 2)], "{name:?}");
        assert_eq!(results(&bench.result(2, 1, "a cat")), ["a cat"]);
    }
}

#[test]
fn sbp_l5_03_a_device_that_cannot_be_told_from_others_does_not_keep_its_call_over_a_restart() {
    let interrupted = |step: &Step| results(step).iter().any(|it| it.contains("interrupted"));
    let mut bench = Bench::new();
    bench.attach_device(None, "camera");
    bench.attach_device(None, "camera");
    bench.begin(vec![call(1, device(20))]);
    bench.command(Command::CallDevice { call: Box::new(call(2, device(20))) });
    let step = bench.fact(Fact::Stop);
    assert_eq!(left(&step), []);
    assert!(matches!(step.replies()[..], [(_, Reply::Called(Err(_)))]), "{step:?}");
    let planned = vec![again(1, call(1, device(20)))];
    let (bench, step) = Bench::next(rows_after(&bench, &step), planned);
    assert!(interrupted(&step) && bench.shown().is_empty(), "{step:?}");

    // One that did not join is not taken for one that did, and the other way round.
    let mut bench = Bench::new();
    bench.command(Command::Attach(Attach { join: false, ..joining(None, "camera") }));
    bench.begin(vec![call(1, device(0))]);
    let rows = stopped(&mut bench);
    let (mut bench, _) = Bench::next(rows, vec![again(1, call(1, device(0)))]);
    bench.attach_device(None, "camera");
    assert_eq!(bench.shown(), []);

    // The gateway of both has restarted, and either may come back first.
    let mut bench = Bench::new();
    bench.attach_device(None, "camera");
    bench.begin(vec![call(1, device(20))]);
    let step = bench.fact(Fact::SurfaceGone { epoch: 1, restarts: true });
    assert_eq!(results(&step), [r#"{"error":"the device disconnected before it answered"}"#]);
}

#[test]
fn g16_a_device_that_is_back_before_the_turn_is_planned_again_gets_its_call_then() {
    let rows = stopped(&mut waiting(0));
    let mut bench = Bench::next_before_its_plan(rows);
    bench.attach_device(Some("phone"), "camera");
    assert_eq!(bench.shown(), []);
    assert_eq!(results(&bench.replans(vec![again(1, call(1, device(0)))])), [""; 0]);
    assert_eq!(bench.shown(), [(id(1), 2)]);
}

#[test]
fn g16_a_result_that_comes_before_the_turn_is_planned_again_is_kept() {
    let rows = stopped(&mut waiting(0));
    let mut bench = Bench::next_before_its_plan(rows);
    bench.attach_device(Some("phone"), "camera");
    assert_eq!(bench.result(2, 1, "over an attachment that ends"), Step::default());
    bench.leaves(2);
    bench.attach_device(Some("phone"), "camera");
    assert_eq!(bench.result(3, 1, "a cat"), Step::default());
    assert_eq!(bench.result(3, 7, "of no call"), Step::default());
    bench.leaves(3);
    let step = bench.replans(vec![again(1, call(1, device(0)))]);
    assert_eq!((results(&step), step.starts()), (vec!["a cat".into()], vec![(turn(1), 2, 1)]));
    assert_eq!(bench.shown(), []);
}

#[test]
fn sbp_l5_04_a_result_before_the_plan_counts_only_from_the_device_that_has_the_call() {
    let rows = stopped(&mut waiting(0));
    let mut bench = Bench::next_before_its_plan(rows);
    bench.attach_device(Some("desk"), "camera");
    bench.result(2, 1, "forged");
    let step = bench.replans(vec![again(1, call(1, device(0)))]);
    assert_eq!((results(&step), bench.shown()), (vec![], vec![]));
}

#[test]
fn g16_the_result_of_a_call_that_was_open_at_the_stop_is_taken_until_the_owner_ends() {
    let mut bench = waiting(0);
    let step = bench.fact(Fact::Stop);
    assert_eq!(left(&step), [(1, true)]);
    let step = bench.result(1, 1, "a cat");
    assert_eq!((results(&step), step.starts()), (vec!["a cat".into()], vec![]));
}

#[test]
fn g9_the_deadline_of_a_call_does_not_move_with_its_owner() {
    let mut bench = waiting(0);
    bench.wait(20);
    let rows = stopped(&mut bench);
    let (mut next, _) = Bench::next(rows, vec![again(1, call(1, device(0)))]);
    // The clock of the next owner is at the beginning.
    let begun = next.now().instant;
    assert_eq!(next.machine.deadline(), Some(begun + Duration::from_secs(30)), "never longer");
    next.wait(30);
    let away = [r#"{"error":"the device disconnected before it answered"}"#];
    assert_eq!(results(&next.fact(Fact::Deadline)), away);

    let mut bench = waiting(0);
    bench.wait(10);
    let rows = stopped(&mut bench);
    let mut next = Bench::next_before_its_plan(rows);
    next.wait(25);
    next.replans(vec![again(1, call(1, device(0)))]);
    assert_eq!(next.machine.deadline(), Some(next.now().instant + Duration::from_secs(5)));
}

#[test]
fn g9_a_call_whose_time_was_over_before_the_next_owner_came_is_interrupted_or_made_again() {
    for repeatable in [false, true] {
        let rows = stopped(&mut waiting(0));
        let mut bench = Bench::next_before_its_plan(rows);
        bench.wait(30);
        bench.attach_device(Some("phone"), "camera");
        let planned = PlannedCall { again: repeatable, ..again(1, call(1, device(0))) };
        let step = bench.replans(vec![planned]);
        if repeatable {
            assert_eq!(bench.shown(), [(id(101), 2)], "a new call");
        } else {
            assert!(results(&step)[0].contains("interrupted"), "{step:?}");
        }
    }
}

#[test]
fn g16_what_a_crash_left_is_not_taken_up_as_if_the_owner_had_stopped() {
    let rows = stopped(&mut waiting(0));
    // The next owner starts the turn, and crashes.
    let (_, step) = Bench::loading(rows.clone());
    assert_eq!(step.writes, [Write::Start { turn: turn(1), attempt: 2 }]);
    let turns = vec![TurnRow { attempt: 2, ..rows.turns[0].clone() }];
    let (mut bench, _) = Bench::loading(Loaded { turns, ..rows });
    let calls = vec![again(1, call(1, device(0)))];
    let plan = Ok(Replanned { seq: 2, calls, rounds: 1, spent_usd: 0.0 });
    let step = bench.fact(Fact::Replanned { turn: turn(1), attempt: 3, plan });
    assert!(results(&step)[0].contains("interrupted"), "{step:?}");
    assert_eq!(bench.shown(), []);
}

#[test]
fn sbp_l2_13_stops_in_good_order_do_not_count_as_attempts() {
    let replanned = |bench: &mut Bench, attempt| {
        let calls = vec![again(1, call(1, device(0)))];
        let plan = Ok(Replanned { seq: 2, calls, rounds: 1, spent_usd: 0.0 });
        bench.fact(Fact::Replanned { turn: turn(1), attempt, plan });
        bench.machine.turns() == 1
    };
    let mut bench = waiting(0);
    let mut rows = stopped(&mut bench);
    for attempt in 2..8 {
        bench = Bench::loading(rows).0;
        assert!(replanned(&mut bench, attempt), "attempt {attempt}");
        rows = stopped(&mut bench);
    }
    // From here on it crashes: once is as if nothing had been before, and twice is too often.
    for (attempt, goes_on) in [(8, true), (9, true), (10, false)] {
        let turns = vec![TurnRow { attempt: attempt - 1, ..rows.turns[0].clone() }];
        let (mut bench, _) = Bench::loading(Loaded { turns, ..rows.clone() });
        assert_eq!(replanned(&mut bench, attempt), goes_on, "attempt {attempt}");
    }
}

#[test]
fn g16_what_the_model_calls_while_its_owner_stops_is_begun_by_the_next_one() {
    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "camera");
    bench.said(1);
    bench.fact(Fact::Stop);
    bench.fact(Fact::SurfaceGone { epoch: 1, restarts: true });
    let made = vec![call(0, device(0)), asking(1, task()), call(2, task())];
    let step = bench.round_ended(1, 0, calls(made));
    assert_eq!(
        (runs(&step), bench.shown()),
        (vec![id(2)], vec![]),
        "nobody has to be there for it"
    );
    assert_eq!(left(&step), [(0, false), (1, false)]);
    bench.fact(Fact::CallEnded { call: id(2), result: Ok(json!("found")) });
    let rows = rows_after(&bench, &step);

    let planned = || {
        let mut planned = vec![again(0, call(0, device(30))), again(1, asking(1, task()))];
        let permission = planned[1].permission.as_mut().unwrap();
        (permission.replanned, permission.wait) = (true, false);
        planned
    };
    let approves = Attach { approver: Some(OWNER), ..joining(Some("phone"), "camera") };
    // Who has to be there comes back before the turn is planned again, or after.
    let mut bench = Bench::next_before_its_plan(rows.clone());
    bench.command(Command::Attach(approves.clone()));
    let step = bench.replans(planned());
    assert_eq!((results(&step), step.names()), (vec![], vec!["ask"]), "a person is asked now");
    assert_eq!(bench.shown(), [(id(100), 2)]);

    let (mut bench, step) = Bench::next(rows.clone(), planned());
    assert_eq!((results(&step), step.names()), (vec![], vec![]));
    let step = bench.command(Command::Attach(approves));
    assert!(step.names().contains(&"ask"), "{step:?}");
    assert_eq!(bench.shown(), [(id(100), 2)]);

    let (mut bench, _) = Bench::next(rows, planned());
    bench.wait(30);
    let results = results(&bench.fact(Fact::Deadline));
    assert!(results[0].contains("disconnected"), "{results:?}");
    assert!(results[1].contains("nobody who may approve is attached"), "{results:?}");
}

#[test]
fn g21_a_call_that_was_allowed_and_may_have_been_made_is_not_made_again_after_a_crash_and_a_stop() {
    for work in [task(), device(0)] {
        let used = AskedRow {
            approval: approval(1, ApprovalState::Used),
            place: (2, 1),
            definition: String::new(),
        };
        let crashed = TurnRow { advanced: true, ..row(1, Origin::Surface) };
        let rows = Loaded { turns: vec![crashed], asked: vec![used], ..loaded() };
        let (mut bench, _) = Bench::loading(rows);
        bench.fact(Fact::Stop);
        let permission = Permission::of(approval(8, ApprovalState::Pending));
        let permission = Some(Permission { replanned: true, ..permission });
        let step = bench.replans(vec![PlannedCall { permission, ..call(1, work) }]);
        assert!(results(&step)[0].contains("interrupted"), "{step:?}");
        assert_eq!(left(&step), []);
    }
}

#[test]
fn sbp_l2_18_a_turn_that_is_cancelled_while_its_owner_stops_ends_there() {
    let mut bench = Bench::new();
    bench.said(1);
    bench.fact(Fact::Stop);
    bench.round_ended(1, 0, calls(vec![call(1, device(20))]));
    let step = bench.command(Command::Cancel { turns: vec![turn(1)], running: false });
    assert_eq!(results(&step), [r#"{"error":"the turn was cancelled"}"#]);
    // The round ends at once; nobody else would know of the cancel.
    assert!(step.effects.contains(&Effect::StopRound { turn: turn(1) }), "{step:?}");
    assert_eq!(step.starts(), [(turn(1), 1, 1)]);
}

#[test]
fn sbp_l2_18_a_turn_whose_calls_have_ended_is_cancelled_while_its_owner_stops() {
    let mut bench = Bench::new();
    bench.begin(vec![call(1, task())]);
    bench.fact(Fact::Stop);
    let ended = Fact::CallEnded { call: id(1), result: Ok(json!("found")) };
    assert_eq!(bench.fact(ended).starts(), [], "the next round is the next owner's");
    assert!(bench.machine.is_quiet());
    let step = bench.command(Command::Cancel { turns: vec![turn(1)], running: false });
    assert_eq!(step.starts(), [(turn(1), 1, 1)]);
    assert!(step.effects.contains(&Effect::StopRound { turn: turn(1) }), "{step:?}");
    assert!(!bench.machine.is_quiet());
}

#[test]
fn g16_a_device_whose_replica_stops_has_the_tools_timeout_to_come_back() {
    let mut bench = waiting(0);
    let step = bench.fact(Fact::SurfaceGone { epoch: 1, restarts: true });
    assert_eq!(results(&step), [""; 0]);
    bench.wait(29);
    bench.attach_device(Some("phone"), "camera");
    assert_eq!(bench.shown(), [(id(1), 2)]);
}

/// A program has called the phone's camera, and its owner stops. Returns the call as it was left open.
fn called_by_a_program() -> (Bench, Box<SentCall>) {
    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "camera");
    bench.command(calling(1, None));
    bench.command(Command::CallDevice { call: Box::new(asking(2, task())) });
    let step = bench.fact(Fact::Stop);
    let [(2, Reply::CallLeftOpen(sent)), (3, Reply::Refused(Refusal::Stopping))] =
        step.replies()[..]
    else {
        panic!("{step:?}")
    };
    (bench, sent.clone())
}

fn calling(number: u128, sent: Option<Box<SentCall>>) -> Command {
    let call = Box::new(call(number, device(0)));
    match sent {
        Some(sent) => Command::ResumeCall { call, sent },
        None => Command::CallDevice { call },
    }
}

#[test]
fn g16_a_call_without_a_turn_goes_on_at_the_next_owner_if_its_caller_asks_there() {
    let (bench, sent) = called_by_a_program();
    assert_eq!((sent.id, sent.device.as_deref()), (id(1), Some("phone")));
    let (mut next, _) = Bench::loading(Loaded { head: bench.machine.head().clone(), ..loaded() });
    next.wait(1);
    let before = next.machine.head().clone();
    assert_eq!(next.command(calling(1, Some(sent.clone()))).replies(), []);
    assert_ne!(*next.machine.head(), before, "the commit takes the lease");
    next.attach_device(Some("desk"), "camera");
    assert_eq!(next.shown(), [], "another device must not repeat it");
    next.attach_device(Some("phone"), "camera");
    assert_eq!(next.shown(), [(id(1), 3)]);
    let step = next.result(3, 1, "a cat");
    assert_eq!(*step.reply_of(), Reply::Called(Ok(json!("a cat"))));
    let late = Box::new(SentCall { until: Timestamp::UNIX_EPOCH, ..*sent });
    let Reply::Called(Err(why)) = next.command(calling(1, Some(late))).reply_of().clone() else {
        panic!("its time is over")
    };
    assert!(why.contains("interrupted"), "{why}");
}

#[test]
fn g16_the_result_of_a_programs_call_counts_while_its_owner_stops() {
    for asks_first in [false, true] {
        let (mut bench, sent) = called_by_a_program();
        let ask = |bench: &mut Bench| bench.command(calling(1, Some(sent.clone())));
        let step = match asks_first {
            true => {
                assert_eq!(ask(&mut bench).replies(), []);
                bench.result(1, 1, "a cat")
            }
            false => {
                assert_eq!(bench.result(1, 1, "a cat").replies(), []);
                ask(&mut bench)
            }
        };
        assert_eq!(*step.reply_of(), Reply::Called(Ok(json!("a cat"))), "{asks_first}");
        // What it does not know it leaves to the next one.
        let other = Box::new(SentCall { id: id(7), ..(*sent).clone() });
        let step = bench.command(calling(7, Some(other.clone())));
        assert_eq!(*step.reply_of(), Reply::CallLeftOpen(other));
    }
}

#[test]
fn open_calls_come_back_as_they_were_written() {
    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "camera");
    bench.begin(vec![call(1, device(0)), call(2, device(20))]);
    let step = bench.fact(Fact::Stop);
    let Some(Write::LeaveOpen { open, .. }) = step.writes.last() else { panic!("{step:?}") };
    assert_eq!(OpenCalls::from_json(&open.to_json()).as_ref(), Some(open));
    assert_eq!(OpenCalls::from_json("{"), None);
}
