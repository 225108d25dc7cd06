use serde_json::{Value, json};

use super::*;
use crate::access::OWNER;
use crate::approval::{Approval, Decider};
use crate::completion::ToolCall;
use crate::id::{ApprovalId, UserId};
use crate::session::{Attach, Author, Permission, PlannedCall, Refusal, ReplicaId, Work};
use crate::surface::{SurfaceContext, SurfaceTool};

const OTHER: UserId = UserId(Uuid::from_u128(9));

fn decider(user: UserId, credential: &str) -> Decider {
    Decider { user, credential: credential.into(), from: None }
}

/// A call of the camera that needs permission, as the engine plans it where no rule speaks.
fn planned(number: u128) -> PlannedCall {
    let approval = Approval {
        expires_at: Timestamp::UNIX_EPOCH + Duration::from_secs(600),
        ..Approval::new(
            ApprovalId(Uuid::from_u128(number)),
            SessionId(Uuid::nil()),
            turn(number),
            "camera".into(),
            json!({ "n": number as u64 }),
            Timestamp::UNIX_EPOCH,
        )
    };
    let permission =
        Permission { unless_device_asks: true, wait: false, ..Permission::of(approval) };
    let patience = Duration::from_secs(30);
    let input = Value::Null;
    PlannedCall {
        id: Uuid::from_u128(number),
        n: 0,
        call: ToolCall { id: "c".into(), name: "surface_camera".into(), arguments: "{}".into() },
        work: Work::Device { tool: "camera".into(), input, patience, wait: Duration::ZERO },
        permission: Some(permission),
        again: false,
    }
}

impl Bench {
    fn device(&mut self, name: Option<&str>, tool: SurfaceTool, approver: Option<UserId>) -> Step {
        let surface_id = name.map(str::to_owned);
        self.command(Command::Attach(Attach {
            socket: Uuid::new_v4(),
            edge: ReplicaId(Uuid::nil()),
            surface: SurfaceContext { surface_id, ..SurfaceContext::default() },
            tools: vec![tool],
            device: None,
            join: true,
            take_over: false,
            guest: false,
            approver,
        }))
    }

    /// A turn that makes this call, with this change to its request.
    fn calls(
        &mut self,
        number: u128,
        plan: PlannedCall,
        change: impl FnOnce(&mut TurnRequest),
    ) -> Step {
        let mut submitted = submit(number, Origin::Surface);
        change(Arc::make_mut(&mut submitted.request));
        self.command(Command::Submit(submitted));
        let message = ToolCall::message(std::slice::from_ref(&plan.call));
        let end = RoundEnd::Calls {
            entries: vec![NewEntry::new(EntryKind::Action, message)],
            calls: vec![plan],
            cost_usd: 0.0,
            tokens: Tokens::default(),
            then: None,
        };
        self.round_ended(number, 0, end)
    }

    fn decided(&mut self, number: u128, always: bool, by: Decider) -> Step {
        let approval = ApprovalId(Uuid::from_u128(number));
        self.command(Command::Decide { approval, approved: true, always, by })
    }

    /// The epochs that calls were sent to.
    fn sent(&self) -> Vec<u64> {
        self.machine.live().calls.iter().map(|call| call.epoch).collect()
    }

    fn answered_by(&mut self, epoch: u64, number: u128) {
        let (call, result) = (Uuid::from_u128(number), Ok(Value::Null));
        self.fact(Fact::ToolResult { epoch, call, result });
        self.round_ended(number, 1, answered("done"));
    }
}

fn camera() -> SurfaceTool {
    SurfaceTool::named("camera")
}

#[test]
fn g21_only_who_can_be_reached_is_asked_unless_the_caller_waits() {
    for (approver, waits, asks) in
        [(None, false, false), (None, true, true), (Some(OWNER), false, true)]
    {
        let mut bench = Bench::new();
        bench.device(Some("phone"), camera(), approver);
        let step = bench.calls(1, planned(1), |request| request.wait_for_approval = waits);
        assert_eq!(step.names().contains(&"ask"), asks, "{approver:?} {waits}");
        assert!(bench.sent().is_empty());
        if !asks {
            let told = step.entries().pop().unwrap().2;
            assert!(told.contains("[[tools.rules]]"), "{told}");
        }
    }
}

#[test]
fn g21_a_device_that_asks_gets_the_call_and_time_for_a_person() {
    let mut bench = Bench::new();
    bench.device(Some("phone"), SurfaceTool { asks: true, ..camera() }, None);
    bench.calls(1, planned(1), |_| {});
    assert_eq!(bench.sent(), [1]);
    let deadline = bench.machine.deadline().unwrap();
    assert_eq!(deadline - bench.now().instant, Duration::from_secs(630));
    // Another one of that name that does not ask is not given it.
    let mut bench = Bench::new();
    bench.device(Some("phone"), SurfaceTool { asks: true, ..camera() }, None);
    let mut plan = planned(1);
    if let Work::Device { wait, .. } = &mut plan.work {
        *wait = Duration::from_secs(60);
    }
    bench.calls(1, plan, |_| {});
    bench.device(Some("phone"), camera(), None);
    assert!(bench.sent().is_empty());
}

#[test]
fn g21_a_yes_is_for_the_device_and_the_definition_that_were_shown() {
    let mut bench = Bench::new();
    bench.device(Some("phone"), camera(), Some(OWNER));
    bench.calls(1, planned(1), |_| {});
    bench.device(Some("tablet"), camera(), None);
    bench.decided(1, false, decider(OWNER, "local"));
    assert_eq!(bench.sent(), [1], "not the newer one");
    // The same device with another definition does not get it.
    let mut bench = Bench::new();
    bench.device(Some("phone"), camera(), Some(OWNER));
    bench.calls(1, planned(1), |_| {});
    let changed = SurfaceTool { description: Some("sends it away".into()), ..camera() };
    bench.device(Some("phone"), changed, Some(OWNER));
    let step = bench.decided(1, false, decider(OWNER, "local"));
    assert!(bench.sent().is_empty());
    assert!(step.entries().last().unwrap().2.contains("disconnected"), "{step:?}");
    // A device without a name: only that attachment, or one that came after the question.
    let mut bench = Bench::new();
    bench.device(None, camera(), Some(OWNER));
    bench.device(None, camera(), Some(OWNER));
    bench.calls(1, planned(1), |_| {});
    bench.device(None, camera(), Some(OWNER));
    bench.decided(1, false, decider(OWNER, "local"));
    assert_eq!(bench.sent(), [2], "it is still there");
    let mut bench = Bench::new();
    bench.device(Some("desk"), SurfaceTool::named("none"), Some(OWNER));
    bench.device(None, camera(), None);
    bench.calls(1, planned(1), |_| {});
    bench.leaves(2);
    bench.device(None, camera(), None);
    bench.decided(1, false, decider(OWNER, "local"));
    assert_eq!(bench.sent(), [3], "it may have come back");
}

#[test]
fn g21_a_name_is_not_taken_for_an_attachment_without_one() {
    let mut bench = Bench::new();
    bench.device(None, camera(), Some(OWNER));
    bench.calls(1, planned(1), |_| {});
    bench.decided(1, true, decider(OWNER, "local"));
    bench.answered_by(1, 1);
    bench.device(Some("#1"), camera(), Some(OWNER));
    let step = bench.calls(2, planned(2), |_| {});
    assert!(step.names().contains(&"ask"), "{step:?}");
}

#[test]
fn g9_what_was_allowed_without_a_question_is_not_made_again_after_a_crash() {
    for (replanned, again, is_sent) in
        [(true, false, false), (true, true, true), (false, false, true)]
    {
        let mut bench = Bench::new();
        bench.device(Some("phone"), SurfaceTool { asks: true, ..camera() }, Some(OWNER));
        let mut plan = PlannedCall { again, ..planned(1) };
        plan.permission.as_mut().unwrap().replanned = replanned;
        let step = bench.calls(1, plan, |_| {});
        assert_eq!(!bench.sent().is_empty(), is_sent, "{replanned} {again}: {step:?}");
    }
}

#[test]
fn g21_a_servers_tool_is_called_by_the_definition_that_was_shown() {
    let mut bench = Bench::new();
    bench.device(Some("desk"), SurfaceTool::named("none"), Some(OWNER));
    let mut plan = planned(1);
    plan.work = Work::Task { tool: "mcp_files_write".into(), input: Value::Null };
    plan.permission.as_mut().unwrap().definition = "as it was".into();
    bench.calls(1, plan, |_| {});
    let step = bench.decided(1, false, decider(OWNER, "local"));
    let run = |effect: &Effect| match effect {
        Effect::RunCall { definition, .. } => definition.clone(),
        _ => None,
    };
    assert_eq!(step.effects.iter().find_map(run).as_deref(), Some("as it was"));
}

#[test]
fn g21_always_holds_for_the_device_while_the_definition_stays() {
    let mut bench = Bench::new();
    bench.device(Some("phone"), camera(), Some(OWNER));
    bench.calls(1, planned(1), |_| {});
    let step = bench.decided(1, true, decider(OWNER, "local"));
    assert_eq!(step.names(), ["step_approval", "grant", "step_approval"]);
    bench.answered_by(1, 1);
    let step = bench.calls(2, planned(2), |_| {});
    assert!(!step.names().contains(&"ask"));
    assert_eq!(bench.sent(), [1]);
    bench.answered_by(1, 2);
    let changed = SurfaceTool { description: Some("other".into()), ..camera() };
    bench.device(Some("phone"), changed, Some(OWNER));
    bench.calls(3, planned(3), |_| {});
    let asked = bench.machine.live().approvals.last().unwrap().clone();
    let change = asked.changed.as_ref().unwrap();
    assert!(change.now.contains("other") && !change.before.contains("other"), "{change:?}");
    assert!(bench.sent().is_empty());
    // Who decides against it takes nothing back, and allows nothing.
    let deny = Command::Decide {
        approval: asked.approval_id,
        approved: false,
        always: true,
        by: decider(OWNER, "local"),
    };
    assert_eq!(bench.command(deny).names()[0], "step_approval");
}

#[test]
fn g21_a_second_person_is_another_user_and_a_host_is_not_its_own_approver() {
    let second = |number| {
        let mut plan = planned(number);
        plan.permission.as_mut().unwrap().approval.second_person = true;
        plan
    };
    let mut bench = Bench::new();
    bench.device(Some("phone"), camera(), Some(OWNER));
    let step = bench.calls(1, second(1), |_| {});
    assert!(!step.names().contains(&"ask"), "only the asker is there");
    let mut bench = Bench::new();
    bench.device(Some("phone"), camera(), Some(OTHER));
    bench.calls(1, second(1), |_| {});
    let refused = bench.decided(1, true, decider(OWNER, "local"));
    assert_eq!(*refused.reply_of(), Reply::Refused(Refusal::SecondPerson));
    let step = bench.decided(1, true, decider(OTHER, "local"));
    assert!(!step.names().contains(&"grant"), "two people are asked each time");
    assert_eq!(bench.sent(), [1]);
    // The other user asked: now the session's own user has to agree.
    bench.answered_by(1, 1);
    bench.device(Some("desk"), SurfaceTool::named("none"), Some(OWNER));
    let author = Author { user: OTHER, name: "other".into() };
    bench.calls(2, second(2), |request| request.author = Some(author));
    let refused = bench.decided(2, false, decider(OTHER, "local"));
    assert_eq!(*refused.reply_of(), Reply::Refused(Refusal::SecondPerson));
    bench.decided(2, false, decider(OWNER, "local"));
    assert_eq!(bench.sent(), [1]);
    // A key does not approve the call that was made with it; it may deny it.
    let mut bench = Bench::new();
    bench.device(Some("phone"), camera(), Some(OWNER));
    let mut plan = planned(3);
    plan.permission.as_mut().unwrap().approval.asked_with = Some("k1".into());
    bench.command(Command::CallDevice { call: Box::new(plan) });
    let refused = bench.decided(3, false, decider(OWNER, "k1"));
    assert_eq!(*refused.reply_of(), Reply::Refused(Refusal::OwnCall));
    bench.decided(3, false, decider(OWNER, "k2"));
    assert_eq!(bench.sent(), [1]);
}
