use serde_json::{Value, json};

use super::*;
use crate::access::OWNER;
use crate::approval::{Approval, ApprovalState, Decider};
use crate::completion::ToolCall;
use crate::id::ApprovalId;
use crate::session::{
    AskedRow, Attach, Permission, PlannedCall, Refusal, Replanned, ReplicaId, Work,
};
use crate::surface::{SurfaceContext, SurfaceTool};

/// The owner, who decides.
fn by() -> Decider {
    Decider { user: OWNER, credential: "local".into(), from: None }
}

pub(super) fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

pub(super) fn call(number: u128, work: Work) -> PlannedCall {
    let name = format!("c{number}");
    PlannedCall {
        id: id(number),
        n: u32::try_from(number).unwrap(),
        call: ToolCall { id: name, name: "tool".into(), arguments: "{}".into() },
        work,
        permission: None,
        again: false,
    }
}

pub(super) fn task() -> Work {
    Work::Task { tool: "tool".into(), input: Value::Null }
}

pub(super) fn device(wait: u64) -> Work {
    let (patience, wait) = (Duration::from_secs(30), Duration::from_secs(wait));
    Work::Device { tool: "camera".into(), input: json!({"x": 1}), patience, wait }
}

pub(super) fn approval(number: u128, state: ApprovalState) -> Approval {
    Approval {
        state,
        expires_at: Timestamp::UNIX_EPOCH + Duration::from_secs(60),
        ..Approval::new(
            ApprovalId(id(number)),
            SessionId(Uuid::nil()),
            turn(1),
            "tool".into(),
            json!({}),
            Timestamp::UNIX_EPOCH,
        )
    }
}

pub(super) fn asking(number: u128, work: Work) -> PlannedCall {
    let approval = approval(number, ApprovalState::Pending);
    PlannedCall { permission: Some(Permission::of(approval)), ..call(number, work) }
}

pub(super) fn calls(calls: Vec<PlannedCall>) -> RoundEnd {
    let made: Vec<_> = calls.iter().map(|planned| planned.call.clone()).collect();
    let entries = vec![NewEntry::new(EntryKind::Action, ToolCall::message(&made))];
    RoundEnd::Calls { entries, calls, cost_usd: 0.0, tokens: Tokens::default(), then: None }
}

impl Bench {
    /// A turn that makes these calls.
    fn calling(planned: Vec<PlannedCall>) -> (Self, Step) {
        let mut bench = Self::new();
        let step = bench.begin(planned);
        (bench, step)
    }

    pub(super) fn begin(&mut self, planned: Vec<PlannedCall>) -> Step {
        self.said(1);
        self.round_ended(1, 0, calls(planned))
    }

    pub(super) fn attach_device(&mut self, name: Option<&str>, tool: &str) -> Step {
        self.command(Command::Attach(joining(name, tool)))
    }

    /// The calls sent to devices, as call and epoch.
    pub(super) fn shown(&self) -> Vec<(Uuid, u64)> {
        self.machine.live().calls.iter().map(|call| (call.call, call.epoch)).collect()
    }

    pub(super) fn result(&mut self, epoch: u64, call: u128, text: &str) -> Step {
        let (call, result) = (id(call), Ok(json!(text)));
        self.fact(Fact::ToolResult { epoch, call, result })
    }

    fn decide(&mut self, number: u128, approved: bool) -> Step {
        self.command(Command::Decide {
            approval: ApprovalId(id(number)),
            approved,
            always: false,
            by: by(),
        })
    }
}

pub(super) fn joining(name: Option<&str>, tool: &str) -> Attach {
    let surface_id = name.map(str::to_owned);
    let tool = SurfaceTool::named(tool);
    Attach {
        socket: Uuid::new_v4(),
        edge: ReplicaId(Uuid::nil()),
        surface: SurfaceContext { surface_id, ..SurfaceContext::default() },
        tools: vec![tool],
        device: None,
        join: true,
        take_over: false,
        guest: false,
        approver: None,
    }
}

pub(super) fn runs(step: &Step) -> Vec<Uuid> {
    let run = |effect: &Effect| match effect {
        Effect::RunCall { call, .. } => Some(*call),
        _ => None,
    };
    step.effects.iter().filter_map(run).collect()
}

fn states(step: &Step) -> Vec<ApprovalState> {
    let state = |write: &Write| match write {
        Write::StepApproval { state, .. } => Some(*state),
        _ => None,
    };
    step.writes.iter().filter_map(state).collect()
}

/// The tool results in the log.
pub(super) fn results(step: &Step) -> Vec<String> {
    step.entries().into_iter().map(|(_, _, text)| text).collect()
}

#[test]
fn g9_the_model_is_asked_again_when_all_calls_have_a_result() {
    let (mut bench, step) = Bench::calling(vec![call(1, task()), call(2, task())]);
    assert_eq!((step.names(), runs(&step)), (vec!["append", "spend"], vec![id(1), id(2)]));
    let ended = |number| Fact::CallEnded { call: id(number), result: Ok(json!("done")) };
    let step = bench.fact(ended(2));
    assert_eq!((results(&step), step.starts()), (vec!["done".to_owned()], vec![]));
    assert_eq!(bench.fact(ended(2)), Step::default(), "the first result counts");
    assert_eq!(bench.fact(ended(1)).starts(), [(turn(1), 1, 1)]);
}

#[test]
fn g9_an_answer_that_came_with_the_calls_is_written_after_them() {
    let mut bench = Bench::new();
    bench.said(1);
    let RoundEnd::Calls { entries, calls, cost_usd, tokens, .. } = calls(vec![call(1, task())])
    else {
        unreachable!()
    };
    let RoundEnd::Answered(then) = answered("over to you") else { unreachable!() };
    let then = Some(then);
    bench.round_ended(1, 0, RoundEnd::Calls { entries, calls, cost_usd, tokens, then });
    let step = bench.fact(Fact::CallEnded { call: id(1), result: Err("no".into()) });
    assert_eq!(step.names(), ["append", "append", "spend", "end"]);
    assert_eq!(results(&step)[0], r#"{"error":"no"}"#);
}

#[test]
fn sbp_l5_01_a_call_that_needs_permission_is_marked_as_made_before_it_is_made() {
    let (mut bench, step) = Bench::calling(vec![asking(1, task())]);
    assert_eq!((step.names(), runs(&step)), (vec!["append", "spend", "ask"], vec![]));
    let step = bench.decide(1, true);
    assert_eq!(states(&step), [ApprovalState::Approved, ApprovalState::Used]);
    assert_eq!(runs(&step), [id(1)]);
    let again = bench.decide(1, false);
    assert_eq!((states(&again), runs(&again)), (vec![], vec![]), "the first verdict counts");
    let Reply::Decided(Some(stands)) = again.reply_of() else { panic!("{again:?}") };
    assert_eq!(stands.state, ApprovalState::Used);
    assert_eq!(*bench.decide(7, true).reply_of(), Reply::Decided(None));
}

#[test]
fn sbp_l5_01_a_call_that_nobody_agreed_to_is_not_made() {
    let (mut bench, _) = Bench::calling(vec![asking(1, task())]);
    let step = bench.decide(1, false);
    assert_eq!((states(&step), runs(&step)), (vec![ApprovalState::Denied], vec![]));
    assert_eq!(step.starts(), [(turn(1), 1, 1)]);
    let (mut bench, _) = Bench::calling(vec![asking(1, task())]);
    assert_eq!(bench.fact(Fact::Deadline), Step::default(), "an early timer is ignored");
    bench.wait(60);
    assert_eq!(bench.machine.deadline(), Some(bench.now().instant));
    let step = bench.fact(Fact::Deadline);
    assert_eq!((states(&step), runs(&step)), (vec![ApprovalState::Expired], vec![]));
    assert_eq!(states(&bench.decide(1, true)), []);
}

#[test]
fn sbp_l5_01_a_cancelled_turn_takes_its_question_back() {
    let (mut bench, _) = Bench::calling(vec![asking(1, task())]);
    let step = bench.command(Command::Cancel { turns: vec![turn(1)], running: false });
    assert_eq!(states(&step), [ApprovalState::Denied]);
    assert_eq!(states(&bench.decide(1, true)), []);
}

#[test]
fn g9_after_a_crash_a_call_that_may_have_been_made_is_lost_unless_it_may_be_repeated() {
    for (state, again, made) in [
        (ApprovalState::Pending, false, None),
        (ApprovalState::Approved, false, Some(true)),
        (ApprovalState::Used, false, Some(false)),
        (ApprovalState::Used, true, Some(true)),
        (ApprovalState::Denied, true, Some(false)),
    ] {
        let asked =
            AskedRow { approval: approval(1, state), place: (2, 1), definition: String::new() };
        let advanced = TurnRow { advanced: true, ..row(1, Origin::Surface) };
        let rows = Loaded { turns: vec![advanced], asked: vec![asked], ..loaded() };
        let (mut bench, _) = Bench::loading(rows);
        // The approval has another id this time: it is found by its log position and index.
        let permission = Some(Permission::of(approval(8, ApprovalState::Pending)));
        let planned = PlannedCall { permission, again, ..call(1, task()) };
        let plan = Ok(Replanned { seq: 2, calls: vec![planned], rounds: 1, spent_usd: 0.0 });
        let step = bench.fact(Fact::Replanned { turn: turn(1), attempt: 2, plan });
        assert_eq!(!runs(&step).is_empty(), made == Some(true), "{state:?} {again}");
        assert_eq!(results(&step).len() == 1, made == Some(false), "{state:?} {again}");
        assert!(!step.names().contains(&"ask"), "{step:?}");
    }
}

#[test]
fn sbp_l5_03_a_device_that_does_not_answer_is_waited_for_no_longer_than_it_may_take() {
    let mut bench = Bench::new();
    bench.attach_device(None, "camera");
    bench.begin(vec![call(1, device(0))]);
    assert_eq!(bench.shown(), [(id(1), 1)]);
    bench.wait(30);
    assert_eq!(bench.machine.deadline(), Some(bench.now().instant));
    let step = bench.fact(Fact::Deadline);
    assert_eq!(results(&step), [r#"{"error":"the device did not answer within 30 s"}"#]);
    assert_eq!((bench.shown(), step.starts()), (vec![], vec![(turn(1), 1, 1)]));
}

#[test]
fn sbp_l5_03_a_call_ends_with_its_surface_unless_the_device_is_waited_for() {
    let went_away = [r#"{"error":"the device disconnected before it answered"}"#];
    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "camera");
    bench.begin(vec![call(1, device(0))]);
    assert_eq!(results(&bench.leaves(1)), went_away);

    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "camera");
    bench.begin(vec![call(1, device(10))]);
    assert_eq!(results(&bench.leaves(1)), [""; 0]);
    bench.wait(10);
    assert_eq!(results(&bench.fact(Fact::Deadline)), went_away);
}

#[test]
fn sbp_l5_03_only_the_same_device_gets_the_same_call_again() {
    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "camera");
    bench.begin(vec![call(1, device(20))]);
    bench.leaves(1);
    for (name, tool) in [(Some("desk"), "camera"), (None, "camera"), (Some("phone"), "gps")] {
        bench.attach_device(name, tool);
        assert_eq!(bench.shown(), [], "{name:?} with {tool}");
    }
    bench.attach_device(Some("phone"), "camera");
    assert_eq!(bench.shown(), [(id(1), 5)]);
}

#[test]
fn sbp_l5_03_a_device_without_a_name_is_the_same_only_if_it_comes_after_the_first_one_went() {
    let mut bench = Bench::new();
    bench.attach_device(None, "camera");
    bench.begin(vec![call(1, device(20))]);
    assert_eq!(bench.shown(), [(id(1), 1)]);
    // One attached beside it may be another device.
    bench.attach_device(None, "camera");
    bench.leaves(1);
    assert_eq!(bench.shown(), []);
    bench.attach_device(None, "camera");
    assert_eq!(bench.shown(), [(id(1), 3)]);
}

#[test]
fn sbp_l5_03_a_surface_that_replaces_one_without_a_name_goes_on_with_its_calls() {
    let mut bench = Bench::new();
    bench.attach_device(None, "camera");
    bench.command(Command::Attach(Attach { join: false, ..joining(None, "camera") }));
    bench.begin(vec![call(1, device(20))]);
    assert_eq!(bench.shown(), [(id(1), 2)]);
    bench.command(Command::Attach(Attach { join: false, ..joining(None, "camera") }));
    assert_eq!(bench.shown(), [(id(1), 3)]);
}

#[test]
fn sbp_l5_04_only_the_device_that_has_a_call_answers_it_and_once() {
    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "camera");
    bench.attach_device(Some("desk"), "gps");
    bench.begin(vec![call(1, device(20))]);
    for (epoch, number) in [(2, 1), (9, 1), (1, 2)] {
        let step = bench.result(epoch, number, "forged");
        assert_eq!(step, Step::default(), "{epoch} {number}");
    }
    assert_eq!(results(&bench.result(1, 1, "a picture")), ["a picture"]);
    assert_eq!(bench.result(1, 1, "another").names(), [""; 0]);
}

#[test]
fn sbp_l5_04_the_same_device_may_answer_over_its_next_attachment() {
    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "camera");
    bench.begin(vec![call(1, device(20))]);
    bench.leaves(1);
    // The device no longer offers the tool, but may answer the call it received before.
    bench.attach_device(Some("phone"), "gps");
    assert_eq!(bench.result(1, 1, "late").names(), [""; 0], "the old attachment is closed");
    assert_eq!(results(&bench.result(2, 1, "a picture")), ["a picture"]);
}

#[test]
fn sbp_l5_04_a_tool_that_nobody_declared_is_not_called() {
    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "gps");
    let step = bench.begin(vec![call(1, device(0))]);
    assert_eq!(bench.shown(), []);
    assert_eq!(step.starts(), [(turn(1), 1, 1)]);
}

#[test]
fn g9_a_device_has_sixty_four_calls_at_most() {
    let mut bench = Bench::new();
    bench.attach_device(None, "camera");
    let step = bench.begin((1..=65).map(|number| call(number, device(0))).collect());
    assert_eq!(bench.shown().len(), 64);
    let refused = results(&step).pop().unwrap();
    assert_eq!(refused, r#"{"error":"the device already has 64 calls in flight"}"#);
}

#[test]
fn g9_an_answer_over_a_mebibyte_is_an_error() {
    let mut bench = Bench::new();
    bench.attach_device(None, "camera");
    bench.begin(vec![call(1, device(0))]);
    let step = bench.result(1, 1, &"x".repeat(1 << 20));
    assert_eq!(results(&step), [r#"{"error":"the device's answer is over 1048576 bytes"}"#]);
}

#[test]
fn a_device_is_called_without_a_turn_and_the_caller_gets_the_result() {
    let mut bench = Bench::new();
    bench.attach_device(None, "camera");
    let calls = || Command::CallDevice { call: Box::new(call(1, device(0))) };
    assert_eq!(bench.command(calls()).replies(), []);
    assert_eq!(bench.shown(), [(id(1), 1)]);
    // A retried call: the newest command gets the result.
    assert_eq!(bench.command(calls()).replies(), []);
    assert_eq!(bench.shown(), [(id(1), 1)]);
    let step = bench.result(1, 1, "a picture");
    let called = Reply::Called(Ok(json!("a picture")));
    assert_eq!(step.replies(), [(3, &called)]);
    assert_eq!(step.names(), [""; 0]);
}

#[test]
fn a_caller_that_gives_up_ends_a_call_without_a_turn_and_a_gateway_that_stops_leaves_it_open() {
    let calls = || Command::CallDevice { call: Box::new(call(1, device(0))) };
    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "camera");
    bench.command(calls());
    let step = bench.command(Command::GiveUpCall { call: id(1) });
    let why = "the caller no longer waits for the result".to_owned();
    assert_eq!(step.replies(), [(2, &Reply::Called(Err(why))), (3, &Reply::Done)]);
    bench.command(calls());
    let step = bench.fact(Fact::Stop);
    assert!(matches!(step.replies()[..], [(4, Reply::CallLeftOpen(_))]), "{step:?}");
    let other = Command::CallDevice { call: Box::new(call(2, device(0))) };
    assert_eq!(*bench.command(other).reply_of(), Reply::Refused(Refusal::Stopping));
}

#[test]
fn sbp_l2_18_no_call_begins_for_a_turn_that_was_cancelled_in_its_round() {
    let mut bench = Bench::new();
    bench.attach_device(Some("phone"), "camera");
    bench.said(1);
    bench.command(Command::Cancel { turns: vec![turn(1)], running: false });
    let step = bench.round_ended(1, 0, calls(vec![call(1, device(20)), asking(2, task())]));
    assert_eq!((bench.shown(), runs(&step)), (vec![], vec![]));
    assert_eq!(states(&step), [ApprovalState::Denied], "nobody is asked for what will not be done");
}
