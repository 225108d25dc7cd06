//! Test fixture: a session actor and its driver, run step by step in place of a gateway's task.
//!
//! An [`Actor`] decides, the store commits, and only then the test continues. Rounds of the model
//! and the bundle of a handoff are faked.

use std::sync::Arc;
use std::time::Instant;

use bowline_sbp::access::OWNER;
use bowline_sbp::approval::Decider;
use bowline_sbp::completion::ToolCall;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::{ApprovalId, Seq, SessionId, TurnId};
use bowline_sbp::lifecycle::Change;
use bowline_sbp::message::Message;
use bowline_sbp::session::{
    Actor, After, Answered, Attach, Attached, Command, CommandId, DeviceChange, Effect, Fact,
    HandOff, IdempotencyKey, Input, NewEntry, NewSession, Next, Now, Origin, Packed, Permission,
    PlannedCall, Replanned, ReplicaId, Reply, RoundEnd, SessionLimits, Submit, Tokens, TurnRequest,
    Work,
};
use bowline_sbp::surface::SurfaceContext;
use bowline_store::{Commit, CommitError, EntryKind, Session, TokenHash};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use crate::fixture::*;

/// The replica that owns sessions by default.
pub(crate) const ME: ReplicaId = ReplicaId(Uuid::from_u128(1));

/// The tokens of every answer.
pub(crate) const TOKENS: Tokens = Tokens { prompt: 7, completion: 3 };

pub(crate) struct Live {
    store: S,
    actor: Actor,
    /// The present time.
    pub(crate) at: Timestamp,
    commands: u64,
    /// The running round of the model.
    round: Option<(TurnId, u32, u32)>,
    /// Decisions also allow later calls.
    pub(crate) always: bool,
}

/// The owner, who decides.
pub(crate) fn by() -> Decider {
    Decider { user: OWNER, credential: "local".into(), from: Some("127.0.0.1".into()) }
}

impl Live {
    /// Loads an existing session.
    pub(crate) async fn of(store: &S, id: SessionId) -> Self {
        Self::owned_by(store, id, ME).await
    }

    pub(crate) async fn owned_by(store: &S, id: SessionId, owner: ReplicaId) -> Self {
        store.register(owner).await.unwrap();
        let loaded = store.load(id).await.unwrap().unwrap();
        let actor = Actor::load(loaded, owner, SessionLimits::default(), now(at()));
        Self { store: Arc::clone(store), actor, at: at(), commands: 0, round: None, always: false }
    }

    /// A session that is created by its first turn.
    pub(crate) async fn making(store: &S, new: NewSession) -> Self {
        store.register(ME).await.unwrap();
        let actor = Actor::make(new, ME, SessionLimits::default());
        Self { store: Arc::clone(store), actor, at: at(), commands: 0, round: None, always: false }
    }

    /// A new session without turns.
    pub(crate) async fn new(store: &S) -> Self {
        let id = made(store).await.id;
        Self::of(store, id).await
    }

    pub(crate) fn id(&self) -> SessionId {
        self.actor.machine().id()
    }

    /// The session as stored.
    pub(crate) async fn stored(&self) -> Session {
        self.store.session(self.id()).await.unwrap().unwrap()
    }

    /// The commit for these inputs, not sent yet. [`Live::report`] has to follow.
    pub(crate) fn prepare(&mut self, inputs: Vec<Input>) -> Arc<Commit> {
        let at = self.at;
        match self.actor.take(inputs, Uuid::new_v4(), || now(at)) {
            Next::Commit(commit) => commit,
            Next::Effects(effects) => panic!("nothing to write, only {effects:?}"),
        }
    }

    /// Reports the result of a prepared commit to the actor.
    pub(crate) fn report(&mut self, stored: Result<(), CommitError>) -> Vec<Effect> {
        match self.actor.committed(stored) {
            After::Effects(effects) => self.carried_out(effects),
            After::Refused(_) | After::Again(_) | After::Ended(_) => Vec::new(),
        }
    }

    /// Gives inputs to the actor and stores the result in one commit.
    pub(crate) async fn feed(&mut self, inputs: Vec<Input>) -> Result<Vec<Effect>, CommitError> {
        let at = self.at;
        match self.actor.take(inputs, Uuid::new_v4(), || now(at)) {
            Next::Effects(effects) => Ok(self.carried_out(effects)),
            Next::Commit(commit) => {
                let stored = self.store.commit(commit).await;
                let effects = self.report(stored.clone());
                stored.map(|()| effects)
            }
        }
    }

    fn carried_out(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        for effect in &effects {
            if let Effect::StartRound { turn, attempt, round, .. } = effect {
                self.round = Some((*turn, *attempt, *round));
            }
        }
        effects
    }

    /// The effects of loading the session.
    pub(crate) async fn take_up(&mut self) -> Vec<Effect> {
        self.feed(Vec::new()).await.unwrap()
    }

    /// A command as an input, with the result of looking up its idempotency key.
    pub(crate) async fn command(&mut self, command: Command) -> Input {
        let key = match &command {
            Command::Submit(submit) => submit.key.clone(),
            Command::HandOff(handoff) => handoff.key.clone(),
            _ => None,
        };
        let known = match key {
            None => None,
            Some(key) => self.store.known(key).await.unwrap().map(|(_, known)| known),
        };
        self.commands += 1;
        Input::Command { id: CommandId(self.commands), command: Box::new(command), known }
    }

    /// Executes a command; returns its reply, if there is one already.
    pub(crate) async fn ask(&mut self, command: Command) -> Option<Reply> {
        let input = self.command(command).await;
        let effects = self.feed(vec![input]).await.unwrap();
        let this = CommandId(self.commands);
        effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { to, reply } if to == this => Some(reply),
            _ => None,
        })
    }

    /// Submits a turn, which starts if no other one is running.
    pub(crate) async fn submit(&mut self, text: &str) -> TurnId {
        self.submit_as(request(text), None).await
    }

    pub(crate) async fn submit_as(
        &mut self,
        request: TurnRequest,
        key: Option<IdempotencyKey>,
    ) -> TurnId {
        let turn = new_turn();
        let reply = self.ask(Command::Submit(submit(turn, request, key))).await;
        assert_eq!(reply, Some(Reply::Accepted { turn }));
        turn
    }

    /// The model answers the running turn.
    pub(crate) async fn answer(&mut self, text: &str) {
        self.answer_with(answered(text)).await;
    }

    pub(crate) async fn answer_with(&mut self, entry: NewEntry) {
        let (turn, ..) = self.round.unwrap();
        let (request, advanced) = self.actor.machine().request(turn).unwrap();
        let asked = if advanced { Vec::new() } else { messages_of(&request) };
        self.end_round(RoundEnd::Answered(Box::new(answer(asked, entry)))).await;
    }

    /// The model fails to answer.
    pub(crate) async fn refuse(&mut self) {
        let refusal = self.refusal();
        self.feed(vec![refusal]).await.unwrap();
    }

    pub(crate) fn refusal(&self) -> Input {
        let (turn, attempt, round) = self.round.unwrap();
        let failure = Failure::new(Code::Upstream, "no");
        let end =
            RoundEnd::Refused { asked: Vec::new(), failure, note: "This was not answered.".into() };
        Input::Fact(Fact::RoundEnded { turn, attempt, round, end })
    }

    /// The model calls tools, each of which needs an approval.
    pub(crate) async fn call_tools(&mut self, tools: &[&str]) -> Vec<ApprovalId> {
        let (turn, ..) = self.round.unwrap();
        let (request, advanced) = self.actor.machine().request(turn).unwrap();
        let mut entries = if advanced { Vec::new() } else { messages_of(&request) };
        let calls: Vec<_> = (0..).zip(tools).map(|(n, tool)| self.plan(turn, n, tool)).collect();
        let made: Vec<_> = calls.iter().map(|call| call.call.clone()).collect();
        entries.push(NewEntry::new(EntryKind::Action, ToolCall::message(&made)));
        let asked = calls.iter().filter_map(|call| call.permission.as_ref());
        let asked = asked.map(|permission| permission.approval.approval_id).collect();
        let end = RoundEnd::Calls { entries, calls, cost_usd: 0.0, tokens: TOKENS, then: None };
        self.end_round(end).await;
        asked
    }

    /// Plans the tool calls of the first turn again after a crash; they are in the log at `seq`.
    pub(crate) async fn replan(&mut self, seq: Seq, tools: &[&str]) {
        let left = self.store.load(self.id()).await.unwrap().unwrap().turns.remove(0);
        let calls = (0..).zip(tools).map(|(n, tool)| self.plan(left.id, n, tool)).collect();
        let plan = Ok(Replanned { seq, calls, rounds: 1, spent_usd: 0.0 });
        self.fact(Fact::Replanned { turn: left.id, attempt: left.attempt, plan }).await;
    }

    fn plan(&self, turn_id: TurnId, n: u32, tool: &str) -> PlannedCall {
        let input = json!({ "mode": "photo" });
        let call =
            ToolCall { id: format!("call_{n}"), name: tool.into(), arguments: input.to_string() };
        let approval = approval(self.id(), turn_id, tool, input.clone(), self.at);
        PlannedCall {
            id: Uuid::now_v7(),
            n,
            call,
            work: Work::Task { tool: tool.into(), input },
            permission: Some(Permission::of(approval)),
            again: false,
        }
    }

    /// Decides an approval; returns the calls that are made now.
    pub(crate) async fn decide(&mut self, approval: ApprovalId, approved: bool) -> Vec<Uuid> {
        let input = self
            .command(Command::Decide { approval, approved, always: self.always, by: by() })
            .await;
        let effects = self.feed(vec![input]).await.unwrap();
        let made = effects.into_iter().filter_map(|effect| match effect {
            Effect::RunCall { call, .. } => Some(call),
            _ => None,
        });
        made.collect()
    }

    pub(crate) async fn call_ended(&mut self, call: Uuid) {
        self.fact(Fact::CallEnded { call, result: Ok(json!("a cat")) }).await;
    }

    async fn end_round(&mut self, end: RoundEnd) {
        let (turn, attempt, round) = self.round.unwrap();
        self.fact(Fact::RoundEnded { turn, attempt, round, end }).await;
    }

    pub(crate) async fn fact(&mut self, fact: Fact) {
        self.feed(vec![Input::Fact(fact)]).await.unwrap();
    }

    /// One whole turn: a question and its answer.
    pub(crate) async fn turn(&mut self, text: &str) -> Session {
        self.submit(&format!("ask {text}")).await;
        self.answer(text).await;
        self.stored().await
    }

    /// Attaches a surface that replaces the others.
    pub(crate) async fn attach(&mut self, name: Option<&str>) -> Attached {
        self.attached(surface(name)).await
    }

    /// Attaches a surface beside the others.
    pub(crate) async fn join(&mut self, name: Option<&str>) -> Attached {
        self.attached(Attach { join: true, ..surface(name) }).await
    }

    pub(crate) async fn attached(&mut self, attach: Attach) -> Attached {
        match self.ask(Command::Attach(attach)).await {
            Some(Reply::Attached(attached)) => *attached,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn confirm(&mut self, epoch: u64, seq: u64) {
        self.ask(Command::Confirmed { epoch, seq }).await;
    }

    pub(crate) async fn leave(&mut self, epoch: u64) {
        self.fact(Fact::SurfaceGone { epoch, restarts: false }).await;
    }

    /// Gives a device its own token.
    pub(crate) async fn give_token(&mut self, name: &str, hash: u8, expires_at: Timestamp) {
        let hash = TokenHash([hash; 32]);
        let change = DeviceChange::Token { surface_id: name.into(), hash, expires_at };
        assert_eq!(self.ask(Command::Device(change)).await, Some(Reply::Done));
    }

    pub(crate) async fn forget_device(&mut self, name: &str) -> Option<Reply> {
        let change = DeviceChange::Forget { surface_id: name.into() };
        self.ask(Command::Device(change)).await
    }

    pub(crate) async fn set_status(&mut self, change: Change) {
        assert_eq!(self.ask(Command::SetStatus(change)).await, Some(Reply::Done));
    }

    /// The fact that the bundle of a handoff is ready.
    pub(crate) fn packed(&self, id: SessionId) -> Fact {
        let last_seq = self.actor.machine().head().last_seq;
        Fact::Packed { id, last_seq, packed: Ok(Box::new(packed())) }
    }

    /// Hands the session over, if that is possible now.
    pub(crate) async fn hand_off(&mut self, handoff: HandOff) -> Option<Reply> {
        let id = handoff.id;
        if let Some(refused) = self.ask(Command::HandOff(handoff)).await {
            return Some(refused);
        }
        let to = CommandId(self.commands);
        let packed = self.packed(id);
        let effects = self.feed(vec![Input::Fact(packed)]).await.unwrap();
        effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { to: of, reply } if of == to => Some(reply),
            _ => None,
        })
    }

    pub(crate) async fn delete(&mut self) {
        assert_eq!(self.ask(Command::Delete).await, Some(Reply::Done));
    }
}

fn now(at: Timestamp) -> Now {
    Now { instant: Instant::now(), at, fresh: Uuid::now_v7() }
}

/// A turn submitted over a socket.
pub(crate) fn request(text: &str) -> TurnRequest {
    TurnRequest {
        model: "m".into(),
        params: Vec::new(),
        messages: vec![Message::text("user", text)],
        stream: false,
        checkpoint_every: 1,
        tether: true,
        origin: Origin::Surface,
        agent_id: None,
        recall: false,
        remember: false,
        caller: None,
        history: None,
        digest: None,
        author: None,
        wait_for_approval: false,
        spender: None,
    }
}

/// A turn submitted over HTTP: its caller waits, and gets an error if it is not answered.
pub(crate) fn watched(text: &str) -> TurnRequest {
    TurnRequest { origin: Origin::Http, ..request(text) }
}

pub(crate) fn submit(turn: TurnId, request: TurnRequest, key: Option<IdempotencyKey>) -> Submit {
    Submit {
        turn,
        request: Arc::new(request),
        key,
        resume: true,
        sender: None,
        wait: false,
        blobs: Vec::new(),
    }
}

/// A turn that is accepted and answered in one commit.
pub(crate) fn whole_turn(text: &str) -> Vec<Input> {
    let (turn, request) = (new_turn(), request(&format!("ask {text}")));
    let end = answer(messages_of(&request), answered(text));
    let command = Box::new(Command::Submit(submit(turn, request, None)));
    let end = RoundEnd::Answered(Box::new(end));
    let ended = Fact::RoundEnded { turn, attempt: 1, round: 0, end };
    vec![Input::Command { id: CommandId(0), command, known: None }, Input::Fact(ended)]
}

fn messages_of(request: &TurnRequest) -> Vec<NewEntry> {
    request.messages.iter().cloned().map(NewEntry::message).collect()
}

fn answer(asked: Vec<NewEntry>, entry: NewEntry) -> Answered {
    Answered {
        asked,
        entry,
        tokens: TOKENS,
        unreported: None,
        completion: "{}".into(),
        closing: None,
        routed_to: "offline".into(),
        left_out: None,
        failure: None,
    }
}

/// An attach of a surface, with or without a name.
pub(crate) fn surface(name: Option<&str>) -> Attach {
    let surface_id = name.map(str::to_owned);
    Attach {
        socket: Uuid::new_v4(),
        edge: ME,
        surface: SurfaceContext { surface_id, ..SurfaceContext::default() },
        tools: Vec::new(),
        device: None,
        join: false,
        take_over: false,
        guest: false,
        approver: None,
    }
}

pub(crate) fn packed() -> Packed {
    Packed {
        cid: [7; 32],
        with_memory: false,
        message_count: 2,
        expires_at: later(3600),
        bridge: vec![said("go on")],
        bridge_turn: new_turn(),
        snapshot: snapshot_id(),
        detail: r#"{"reason":"because"}"#.into(),
    }
}

/// One whole turn of a session without another actor.
pub(crate) async fn take_turn(store: &S, id: SessionId, text: &str) -> Session {
    Live::of(store, id).await.turn(text).await
}

pub(crate) async fn change_status(store: &S, id: SessionId, change: Change) {
    Live::of(store, id).await.set_status(change).await;
}

pub(crate) async fn hand_off(store: &S, id: SessionId, handoff: HandOff) -> Session {
    let new = handoff.id;
    let reply = Live::of(store, id).await.hand_off(handoff).await;
    assert!(is_handed_to(new, reply.as_ref()), "{reply:?}");
    store.session(new).await.unwrap().unwrap()
}

/// Whether a session was handed over to this one.
pub(crate) fn is_handed_to(new: SessionId, reply: Option<&Reply>) -> bool {
    matches!(reply, Some(Reply::HandedOff { id, .. }) if *id == new)
}

pub(crate) async fn delete(store: &S, id: SessionId) {
    Live::of(store, id).await.delete().await;
}
