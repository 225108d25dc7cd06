//! Serde round trips of what owners and edges exchange: commands, facts, replies, effects, states.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_sbp::access::OWNER;
use bowline_sbp::api::SbpInfo;
use bowline_sbp::approval::{Approval, ApprovalState, Decider};
use bowline_sbp::blob::Blob;
use bowline_sbp::completion::ToolCall;
use bowline_sbp::context::{CallerTag, HistoryMode, LeftOut};
use bowline_sbp::error::{Code, Failure, UpstreamError};
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{AgentId, ApprovalId, ExportId, SessionId, SnapshotId, TurnId};
use bowline_sbp::lifecycle::{Change, IllegalChange, Status};
use bowline_sbp::message::{EntryKind, Message};
use bowline_sbp::session::{
    Allowed, Answered, Attach, Attached, Closed, Command, CommandId, Consent, DeviceCall,
    DeviceChange, Done, Effect, Fact, HandOff, IdempotencyKey, Input, KnownKey, LiveState,
    LiveSurface, LiveTurn, NewEntry, Origin, Packed, Permission, PlannedCall, Refusal, Replanned,
    ReplicaId, Reply, RequestDigest, RoundEnd, SentCall, Submit, TokenHash, Tokens, TurnRequest,
    Work,
};
use bowline_sbp::surface::{SurfaceContext, SurfaceTool};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

/// Checks that each value is equal after a JSON round trip.
fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(all: Vec<T>) {
    for one in all {
        let text = serde_json::to_string(&one).unwrap();
        let back: T = serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"));
        assert_eq!(back, one, "{text}");
    }
}

fn id() -> Uuid {
    Uuid::from_u128(77)
}

fn turn() -> TurnId {
    TurnId(id())
}

fn at() -> Timestamp {
    Timestamp::from_microsecond(1_700_000_000_123_456).unwrap()
}

/// A message with a number whose spelling must not change.
fn message() -> Message {
    let raw = r#"{"role":"user","content":"hi \ud800","n":1.10}"#.to_owned();
    Message::read(RawValue::from_string(raw).unwrap()).unwrap()
}

fn submit() -> Submit {
    let request = TurnRequest {
        model: "m".into(),
        params: vec![("seed".into(), RawValue::from_string("1e400".into()).unwrap())],
        messages: vec![message()],
        stream: true,
        checkpoint_every: 3,
        tether: true,
        origin: Origin::Surface,
        agent_id: Some(AgentId::fallback()),
        recall: true,
        remember: true,
        caller: Some(CallerTag(u64::MAX)),
        history: Some(HistoryMode::Mine),
        digest: Some(RequestDigest::of(&[b"body"])),
        author: None,
        wait_for_approval: false,
        spender: None,
    };
    let key = IdempotencyKey { scope: "s".into(), key: "k".into(), body_hash: [7; 32] };
    let (request, key) = (Arc::new(request), Some(key));
    Submit {
        turn: turn(),
        request,
        key,
        resume: true,
        sender: Some(3),
        wait: true,
        blobs: vec![Blob::new(b"image".to_vec())],
    }
}

fn surface() -> SurfaceContext {
    SurfaceContext::read(Some(&json!({
        "device_type": "watch", "max_output_tokens": 60, "locale": "de", "surface_id": "phone",
        "ui_capabilities": ["markdown"], "mcp_tools": ["gps"],
    })))
}

fn tools() -> Vec<SurfaceTool> {
    let schema = json!({"type": "object"}).as_object().cloned();
    vec![
        SurfaceTool::named("gps"),
        SurfaceTool {
            name: "camera".into(),
            description: Some("x".into()),
            input_schema: schema,
            asks: false,
        },
    ]
}

fn approval() -> Approval {
    Approval {
        state: ApprovalState::Approved,
        expires_at: at(),
        ..Approval::new(
            ApprovalId(id()),
            SessionId(id()),
            turn(),
            "camera".into(),
            json!({"flash": true}),
            at(),
        )
    }
}

fn works() -> Vec<Work> {
    let (tool, input) = ("camera".to_owned(), json!({"x": [1, null]}));
    let (patience, wait) = (Duration::from_millis(1500), Duration::ZERO);
    vec![
        Work::Known(Err("lost".into())),
        Work::Known(Ok(json!("done"))),
        Work::Task { tool: tool.clone(), input: input.clone() },
        Work::Device { tool, input, patience, wait },
    ]
}

fn calls() -> Vec<PlannedCall> {
    let call = ToolCall { id: "c".into(), name: "camera".into(), arguments: "{}".into() };
    let planned = |(n, work)| PlannedCall {
        id: id(),
        n,
        call: call.clone(),
        work,
        permission: (n == 0).then(|| Permission::of(approval())),
        again: n == 1,
    };
    (0..).zip(works()).map(planned).collect()
}

fn entry() -> NewEntry {
    NewEntry {
        model: Some("m".into()),
        cost_usd: 0.1 + 0.2,
        status: TurnStatus::Cancelled,
        tethered: true,
        agent_id: Some(AgentId::fallback()),
        carried: Some("{}".into()),
        caller: Some(CallerTag(u64::MAX)),
        replaces: Some(2),
        instruction: Some(vec![message()]),
        ..NewEntry::new(EntryKind::Action, message())
    }
}

fn failure() -> Failure {
    let said = UpstreamError {
        status: 429,
        code: Some("insufficient_quota".into()),
        kind: Some("t".into()),
        param: Some("p".into()),
        retry_after_ms: Some(2500),
        context_size: Some(4096),
        partial: true,
    };
    Failure {
        retry_after: Some(3),
        upstream: Some(Box::new(said)),
        ..Failure::new(Code::Upstream, "the model failed")
    }
}

fn answered() -> Box<Answered> {
    Box::new(Answered {
        asked: vec![entry()],
        entry: entry(),
        tokens: Tokens { prompt: 1, completion: 2 },
        completion: "{}".into(),
        closing: Some("data".into()),
        routed_to: "u".into(),
        left_out: None,
        unreported: None,
        failure: Some(failure()),
    })
}

fn done() -> Done {
    let info = SbpInfo {
        session_id: SessionId(id()),
        session_token: Some("t".into()),
        snapshot_id: Some(SnapshotId(id())),
        resume_available: true,
        resume_prompt: Some("go on".into()),
        last_checkpoint: Some(at()),
        step_count: 4,
        cost_usd: 0.1 + 0.2,
        model_routed_to: Some("u".into()),
        turn_id: Some(turn()),
        seq: Some(9),
        turn_status: TurnStatus::Failed,
        left_out: Some(LeftOut { turns: 1, messages: 3 }),
    };
    Done { completion: "{}".into(), info, closing: Some("data".into()) }
}

fn hand_off() -> HandOff {
    HandOff {
        id: SessionId(id()),
        export_id: ExportId(id()),
        token_hash: TokenHash([1; 32]),
        to_agent: AgentId::fallback(),
        message: Some("hello".into()),
        reason: None,
        memory: true,
        key: submit().key,
    }
}

fn commands() -> Vec<Command> {
    let by = Decider { user: OWNER, credential: "local".into(), from: Some("::1".into()) };
    let attach = Attach {
        socket: id(),
        edge: ReplicaId(id()),
        surface: surface(),
        tools: tools(),
        device: Some(TokenHash([2; 32])),
        join: true,
        take_over: true,
        guest: false,
        approver: None,
    };
    let (surface_id, hash) = ("phone".to_owned(), TokenHash([3; 32]));
    let token = DeviceChange::Token { surface_id: surface_id.clone(), hash, expires_at: at() };
    let mut all = vec![
        Command::Submit(submit()),
        Command::Await { turn: turn() },
        Command::Cancel { turns: vec![turn()], running: true },
        Command::Attach(attach),
        Command::Confirmed { epoch: 1, seq: u64::MAX },
        Command::ToolResult { epoch: 1, call: id(), result: Ok(json!({"a": 1.5})) },
        Command::ToolResult { epoch: 1, call: id(), result: Err("no".into()) },
        Command::Decide {
            approval: ApprovalId(id()),
            approved: true,
            always: true,
            by: by.clone(),
        },
        Command::GiveUpCall { call: id() },
        Command::SetStatus(Change::Suspend),
        Command::SetTitle(Some("Trip".into())),
        Command::SetTitle(None),
        Command::Device(token),
        Command::Device(DeviceChange::Forget { surface_id }),
        Command::HandOff(hand_off()),
        Command::Hold { by: id(), until: at() },
        Command::EndHold { by: id() },
        Command::Delete,
    ];
    for call in calls() {
        all.push(Command::ResumeCall { call: Box::new(call.clone()), sent: Box::new(sent()) });
        all.push(Command::CallDevice { call: Box::new(call) });
    }
    all
}

fn sent() -> SentCall {
    let shown = Allowed { device: None, definition: "{}".into(), epoch: 2, newer_than: 3 };
    let consent = Consent::Person(shown);
    SentCall { id: id(), device: Some("phone".into()), older: 7, until: at(), consent }
}

fn facts() -> Vec<Fact> {
    let packed = Packed {
        cid: [9; 32],
        with_memory: false,
        message_count: 3,
        expires_at: at(),
        bridge: vec![entry()],
        bridge_turn: turn(),
        snapshot: SnapshotId(id()),
        detail: "{}".into(),
    };
    let (calls, tokens) = (calls(), Tokens { prompt: 1, completion: 2 });
    let plan = Replanned { seq: 2, calls: calls.clone(), rounds: 1, spent_usd: 0.3 };
    let ends = [
        RoundEnd::Calls {
            entries: vec![entry()],
            calls,
            cost_usd: 0.1,
            tokens,
            then: Some(answered()),
        },
        RoundEnd::Answered(answered()),
        RoundEnd::Refused { asked: Vec::new(), failure: failure(), note: "n".into() },
    ];
    let mut all = vec![
        Fact::Replanned { turn: turn(), attempt: 2, plan: Ok(plan) },
        Fact::Replanned { turn: turn(), attempt: 2, plan: Err(failure()) },
        Fact::CallEnded { call: id(), result: Ok(json!(null)) },
        Fact::SurfaceGone { epoch: 4, restarts: true },
        Fact::Packed { id: SessionId(id()), last_seq: 3, packed: Ok(Box::new(packed)) },
        Fact::Packed { id: SessionId(id()), last_seq: 3, packed: Err(failure()) },
        Fact::Stop,
        Fact::Deadline,
    ];
    all.extend(ends.map(|end| Fact::RoundEnded { turn: turn(), attempt: 1, round: 2, end }));
    all
}

fn replies() -> Vec<Reply> {
    let attached = Attached { epoch: 3, context: surface(), cursor: 4, head: 5, until: Some(at()) };
    let illegal = IllegalChange { from: Status::Completed, change: Change::Resumed };
    let mut all = vec![
        Reply::Accepted { turn: turn() },
        Reply::Ended { turn: turn(), outcome: Box::new(Ok(done())) },
        Reply::Ended { turn: turn(), outcome: Box::new(Err(failure())) },
        Reply::Suspended,
        Reply::Cancelled { turns: vec![turn()] },
        Reply::Attached(Box::new(attached)),
        Reply::Decided(Some(Box::new(approval()))),
        Reply::Decided(None),
        Reply::Called(Ok(json!(1))),
        Reply::Called(Err("no".into())),
        Reply::CallLeftOpen(Box::new(sent())),
        Reply::Done,
    ];
    let refusals = [
        Refusal::NoSession,
        Refusal::Ended(Status::Failed),
        Refusal::HandedOver(SessionId(id())),
        Refusal::Full(64),
        Refusal::Held(at()),
        Refusal::KeyReused,
        Refusal::TurnUnknown,
        Refusal::Illegal(illegal),
        Refusal::TooManySurfaces(64),
        Refusal::Revoked,
        Refusal::TooManyDevices(64),
        Refusal::NoDevice,
        Refusal::HandoffWaits,
        Refusal::Failed(failure()),
        Refusal::Stopping,
        Refusal::Unreachable,
        Refusal::NotStored,
    ];
    all.extend(refusals.map(Reply::Refused));
    all
}

#[test]
fn commands_and_facts_survive_the_way_to_the_owner() {
    survives(commands());
    survives(facts());
    let known = Some(KnownKey { same_body: true, turn_id: Some(turn()), result: None });
    let command = |command| Input::Command {
        id: CommandId(1),
        command: Box::new(command),
        known: known.clone(),
    };
    survives(commands().into_iter().map(command).collect());
    survives(facts().into_iter().map(Input::Fact).collect());
}

#[test]
fn replies_and_effects_survive_the_way_back() {
    survives(replies());
    let reply = |reply| Effect::Reply { to: CommandId(7), reply };
    survives(replies().into_iter().map(reply).collect());
    let run = |work| Effect::RunCall { call: id(), turn: Some(turn()), work, definition: None };
    survives(works().into_iter().map(run).collect());
    survives(vec![
        Effect::StartRound { turn: turn(), attempt: 2, round: 3, spent_usd: 0.1 + 0.2 },
        Effect::Replan { turn: turn(), attempt: 2 },
        Effect::StopRound { turn: turn() },
        Effect::StopCall { call: id() },
        Effect::Pack { handoff: hand_off(), last_seq: 4 },
        Effect::DeviceTook(Duration::from_nanos(1_500_000_001)),
        Effect::End,
    ]);
}

#[test]
fn the_live_state_survives_the_way_to_its_watchers() {
    let call = |deadline| DeviceCall {
        call: id(),
        epoch: 3,
        tool: "camera".into(),
        input: Arc::new(json!({})),
        deadline,
    };
    let live = LiveState {
        user: OWNER,
        status: Status::Running,
        head: 9,
        step_count: 4,
        gone: false,
        handed_to: Some((SessionId(id()), AgentId::fallback())),
        turns: vec![LiveTurn {
            author: Some("bob".into()),
            id: turn(),
            attempt: 2,
            running: true,
            tethered: true,
            sender: Some(3),
            question: Some("why?".into()),
            model: "m".into(),
        }],
        surfaces: vec![LiveSurface {
            epoch: 3,
            joined: true,
            context: Arc::new(surface()),
            tools: tools().into(),
        }],
        closed: vec![(1, Closed::Replaced), (2, Closed::Revoked)],
        calls: vec![call(None)],
        approvals: vec![Arc::new(approval())],
    };
    // A deadline is an instant of the owner's clock, and is not serialized.
    let here = LiveState { calls: vec![call(Some(Instant::now()))], ..live.clone() };
    let text = serde_json::to_string(&here).unwrap();
    assert_eq!(serde_json::from_str::<LiveState>(&text).unwrap(), live);
    survives(vec![live]);
}
