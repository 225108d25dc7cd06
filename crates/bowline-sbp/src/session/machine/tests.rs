//! The machine's rules, one test each.

mod calls;
mod handoff;
mod hold;
mod keys;
mod permissions;
mod recovery;
mod restart;
mod surfaces;
mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use uuid::Uuid;

use super::{Machine, SessionLimits, Step};
use crate::error::{Code, Failure};
use crate::frame::TurnStatus;
use crate::id::{AgentId, SessionId, TurnId};
use crate::lifecycle::Status;
use crate::message::{EntryKind, Message};
use crate::session::{
    Answered, Command, CommandId, Effect, Fact, Head, Input, KnownKey, Loaded, NewEntry, Now,
    Origin, Outcome, Reply, RoundEnd, Submit, Tokens, TurnRequest, TurnRow, Write,
};

/// A machine with simulated time.
#[derive(Debug)]
struct Bench {
    machine: Machine,
    begun: Instant,
    elapsed: Duration,
    commands: u64,
}

impl Bench {
    /// A session without turns.
    fn new() -> Self {
        Self::loading(loaded()).0
    }

    /// A loaded session, and its recovery step.
    fn loading(loaded: Loaded) -> (Self, Step) {
        let begun = Instant::now();
        let now = Now { instant: begun, at: Timestamp::UNIX_EPOCH, fresh: Uuid::nil() };
        let (machine, step) = Machine::load(loaded, SessionLimits::default(), now);
        (Self::of(machine, begun), step)
    }

    fn of(machine: Machine, begun: Instant) -> Self {
        Self { machine, begun, elapsed: Duration::ZERO, commands: 0 }
    }

    fn now(&self) -> Now {
        let (instant, at) = (self.begun + self.elapsed, Timestamp::UNIX_EPOCH + self.elapsed);
        Now { instant, at, fresh: Uuid::nil() }
    }

    fn wait(&mut self, seconds: u64) {
        self.elapsed += Duration::from_secs(seconds);
    }

    fn handle(&mut self, input: Input) -> Step {
        let now = self.now();
        self.machine.handle(input, now)
    }

    fn fact(&mut self, fact: Fact) -> Step {
        self.handle(Input::Fact(fact))
    }

    fn command(&mut self, command: Command) -> Step {
        self.command_known(command, None)
    }

    fn command_known(&mut self, command: Command, known: Option<KnownKey>) -> Step {
        self.commands += 1;
        let id = CommandId(self.commands);
        self.handle(Input::Command { id, command: Box::new(command), known })
    }

    /// A surface disconnects by itself.
    fn leaves(&mut self, epoch: u64) -> Step {
        self.fact(Fact::SurfaceGone { epoch, restarts: false })
    }

    /// A turn over HTTP whose caller waits.
    fn submit(&mut self, number: u128) -> Step {
        self.command(Command::Submit(waited(number)))
    }

    /// A turn that a surface sent.
    fn said(&mut self, number: u128) -> Step {
        self.command(Command::Submit(submit(number, Origin::Surface)))
    }

    fn round_ended(&mut self, number: u128, round: u32, end: RoundEnd) -> Step {
        self.fact(Fact::RoundEnded { turn: turn(number), attempt: 1, round, end })
    }

    fn answer(&mut self, number: u128) -> Step {
        self.round_ended(number, 0, answered("yes"))
    }
}

fn turn(number: u128) -> TurnId {
    TurnId(Uuid::from_u128(number))
}

fn submit(number: u128, origin: Origin) -> Submit {
    let request = TurnRequest {
        model: "m".into(),
        params: Vec::new(),
        messages: vec![Message::text("user", "a question")],
        stream: false,
        checkpoint_every: 10,
        tether: true,
        origin,
        agent_id: None,
        recall: false,
        remember: false,
        caller: None,
        history: None,
        digest: None,
        author: None,
        wait_for_approval: false,
        spender: None,
    };
    let request = Arc::new(request);
    Submit {
        turn: turn(number),
        request,
        key: None,
        resume: false,
        sender: None,
        wait: false,
        blobs: Vec::new(),
    }
}

fn waited(number: u128) -> Submit {
    Submit { wait: true, ..submit(number, Origin::Http) }
}

fn answered(text: &str) -> RoundEnd {
    let message = Message::text("assistant", text);
    RoundEnd::Answered(Box::new(Answered {
        asked: vec![NewEntry::message(Message::text("user", "a question"))],
        entry: NewEntry { cost_usd: 0.5, ..NewEntry::new(EntryKind::Turn, message) },
        tokens: Tokens { prompt: 2, completion: 1 },
        completion: text.into(),
        closing: None,
        routed_to: "offline".into(),
        left_out: None,
        unreported: None,
        failure: None,
    }))
}

fn refused() -> RoundEnd {
    let failure = Failure::new(Code::Upstream, "the model failed");
    RoundEnd::Refused { asked: Vec::new(), failure, note: "The model failed.".into() }
}

fn loaded() -> Loaded {
    Loaded {
        owner: None,
        id: SessionId(Uuid::nil()),
        user: crate::access::OWNER,
        agent_id: AgentId::fallback(),
        head: Head::new(Status::Idle, Timestamp::UNIX_EPOCH),
        fence: 1,
        version: 1,
        turns: Vec::new(),
        attachments: Vec::new(),
        devices: Vec::new(),
        asked: Vec::new(),
        grants: Vec::new(),
        held: None,
    }
}

/// A stored turn that has started.
fn row(number: u128, origin: Origin) -> TurnRow {
    TurnRow {
        id: turn(number),
        place: u64::try_from(number).unwrap(),
        request: submit(number, origin).request.to_json(),
        found: Some(Status::Idle),
        started: true,
        attempt: 1,
        advanced: false,
        keyed: false,
        open_calls: None,
    }
}

impl Step {
    fn names(&self) -> Vec<&'static str> {
        self.writes.iter().map(Write::name).collect()
    }

    /// The replies, and whom they are for.
    fn replies(&self) -> Vec<(u64, &Reply)> {
        let reply = |effect| match effect {
            &Effect::Reply { to, ref reply } => Some((to.0, reply)),
            _ => None,
        };
        self.effects.iter().filter_map(reply).collect()
    }

    /// The only reply.
    fn reply_of(&self) -> &Reply {
        let replies = self.replies();
        assert_eq!(replies.len(), 1, "{self:?}");
        replies[0].1
    }

    /// The outcome that the only reply gives.
    fn outcome(&self) -> &Outcome {
        match self.reply_of() {
            Reply::Ended { outcome, .. } => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// The turns whose rounds start.
    fn starts(&self) -> Vec<(TurnId, u32, u32)> {
        let start = |effect: &Effect| match *effect {
            Effect::StartRound { turn, attempt, round, .. } => Some((turn, attempt, round)),
            _ => None,
        };
        self.effects.iter().filter_map(start).collect()
    }

    /// The entries, as their kind, status and text.
    fn entries(&self) -> Vec<(EntryKind, TurnStatus, String)> {
        let entries = self.writes.iter().filter_map(|write| match write {
            Write::Append { entries, .. } => Some(entries),
            _ => None,
        });
        let said = |entry: &NewEntry| (entry.kind, entry.status, entry.message.content());
        entries.flatten().map(|placed| said(&placed.entry)).collect()
    }
}
