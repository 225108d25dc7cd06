//! From an owner that stops in good order to the next one.

use serde_json::json;

use super::calls::{asking, call, calls, device, id, results, runs, task};
use super::*;
use crate::session::{OpenCall, PlannedCall, Refusal, Replanned, SentCall};

/// The calls that were left open, by their index, and which of them were sent.
fn left(step: &Step) -> Vec<(u32, bool)> {
    let open = step.writes.iter().rev().find_map(|write| match write {
        Write::LeaveOpen { calls, .. } => Some(calls),
        _ => None,
    });
    let open = open.unwrap_or_else(|| panic!("nothing is left open: {step:?}"));
    open.iter().map(|call| (call.n, call.sent.is_some())).collect()
}

/// An owner that stops, and its rows for the next one.
fn stopped(bench: &mut Bench) -> Loaded {
    let step = bench.fact(Fact::Stop);
    rows_after(bench, &step)
}

fn rows_after(bench: &Bench, step: &Step) -> Loaded {
    let open = step.writes.iter().rev().find_map(|write| match write {
        Write::LeaveOpen { turn, calls } => Some((*turn, calls.clone())),
        _ => None,
    });
    let (id, open_calls) = open.unwrap_or_else(|| panic!("nothing is left open: {step:?}"));
    assert_eq!(id, turn(1));
    let waiting =
        TurnRow { advanced: true, open_calls: Some(open_calls), ..row(1, Origin::Surface) };
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
    for (name, wait) in [(Some("phone"), 0), (Some("phone"), 20), (None, 0)] {
        let mut bench = Bench::new();
        bench.attach_device(name, "camera");
        bench.begin(vec![call(1, device(wait))]);
        let rows = stopped(&mut bench);
        let (mut bench, step) = Bench::next(rows, vec![again(1, call(1, device(wait)))]);
        assert_eq!((results(&step), bench.shown()), (vec![], vec![]), "{name:?}: it is waited for");
        bench.attach_device(name, "camera");
        assert_eq!(bench.shown(), [(id(1), 2)], "{name:?}");
        assert_eq!(results(&bench.result(2, 1, "a cat")), ["a cat"]);
    }
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
fn g16_a_result_that_comes_before_the_turn_is_planned_again_is_kept_and_the_first_counts() {
    let rows = stopped(&mut waiting(0));
    let mut bench = Bench::next_before_its_plan(rows);
    bench.attach_device(Some("phone"), "camera");
    assert_eq!(bench.result(2, 1, "a cat"), Step::default());
    assert_eq!(bench.result(2, 1, "a dog"), Step::default());
    assert_eq!(bench.result(2, 7, "of no call"), Step::default());
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
    let (_, step) = Bench::loading(rows.clone());
    assert_eq!(step.names(), ["start"], "which clears what was left open");
    let turns = vec![TurnRow { open_calls: None, ..rows.turns[0].clone() }];
    let (bench, step) = Bench::next(Loaded { turns, ..rows }, vec![again(1, call(1, device(0)))]);
    assert!(results(&step)[0].contains("interrupted"), "{step:?}");
    assert_eq!(bench.shown(), []);
}

#[test]
fn sbp_l2_13_stops_in_good_order_do_not_count_as_attempts() {
    let rows = stopped(&mut waiting(0));
    let turns = vec![TurnRow { attempt: 5, ..rows.turns[0].clone() }];
    let (mut bench, _) = Bench::loading(Loaded { turns, ..rows });
    let calls = vec![again(1, call(1, device(0)))];
    let plan = Ok(Replanned { seq: 2, calls, rounds: 1, spent_usd: 0.0 });
    bench.fact(Fact::Replanned { turn: turn(1), attempt: 6, plan });
    bench.attach_device(Some("phone"), "camera");
    assert_eq!(bench.shown(), [(id(1), 2)]);
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

    let mut bench = Bench::next_before_its_plan(rows);
    bench.attach_device(Some("phone"), "camera");
    let mut planned = vec![again(0, call(0, device(0))), again(1, asking(1, task()))];
    planned[1].permission.as_mut().unwrap().replanned = true;
    let step = bench.replans(planned);
    assert_eq!((results(&step), step.names()), (vec![], vec!["ask"]), "a person is asked now");
    assert_eq!(bench.shown(), [(id(100), 2)]);
}

#[test]
fn sbp_l2_18_a_turn_that_is_cancelled_while_its_owner_stops_has_no_open_calls() {
    let mut bench = Bench::new();
    bench.said(1);
    bench.fact(Fact::Stop);
    bench.round_ended(1, 0, calls(vec![call(1, device(20))]));
    let step = bench.command(Command::Cancel { turns: vec![turn(1)], running: false });
    assert_eq!(results(&step), [r#"{"error":"the turn was cancelled"}"#]);
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

#[test]
fn g16_a_call_without_a_turn_goes_on_at_the_next_owner_if_its_caller_asks_there() {
    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "camera");
    let calls = |sent| Command::CallDevice { call: Box::new(call(1, device(0))), sent };
    bench.command(calls(None));
    bench.command(Command::CallDevice { call: Box::new(asking(2, task())), sent: None });
    let step = bench.fact(Fact::Stop);
    let [(2, Reply::CallLeftOpen(sent)), (3, Reply::Refused(Refusal::Stopping))] =
        step.replies()[..]
    else {
        panic!("{step:?}")
    };
    assert_eq!(sent.device.as_deref(), Some("phone"));

    let (mut next, _) = Bench::loading(Loaded { head: bench.machine.head().clone(), ..loaded() });
    let sent = sent.clone();
    assert_eq!(next.command(calls(Some(sent.clone()))).replies(), []);
    next.attach_device(Some("desk"), "camera");
    assert_eq!(next.shown(), [], "another device must not repeat it");
    next.attach_device(Some("phone"), "camera");
    assert_eq!(next.shown(), [(id(1), 3)]);
    let step = next.result(3, 1, "a cat");
    assert_eq!(*step.reply_of(), Reply::Called(Ok(json!("a cat"))));
    let late = Box::new(SentCall { until: Timestamp::UNIX_EPOCH, ..*sent });
    let Reply::Called(Err(why)) = next.command(calls(Some(late))).reply_of().clone() else {
        panic!("its time is over")
    };
    assert!(why.contains("interrupted"), "{why}");
}

#[test]
fn open_calls_come_back_as_they_were_written() {
    let mut bench = Bench::new();
    bench.attach_device(None, "camera");
    bench.begin(vec![call(1, device(0)), call(2, device(20))]);
    let step = bench.fact(Fact::Stop);
    let Some(Write::LeaveOpen { calls, .. }) = step.writes.last() else { panic!("{step:?}") };
    let text = serde_json::to_string(calls).unwrap();
    assert_eq!(serde_json::from_str::<Vec<OpenCall>>(&text).unwrap(), *calls);
}
