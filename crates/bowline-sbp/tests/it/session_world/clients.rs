//! The simulated clients: programs over HTTP, surfaces, and a person who decides approvals. Each
//! sends one request at a time and retries until it is answered.

use std::collections::VecDeque;
use std::time::Duration;

use bowline_sbp::access::OWNER;
use bowline_sbp::approval::{ApprovalState, Decider};
use bowline_sbp::completion::ToolCall;
use bowline_sbp::id::{AgentId, ExportId, SessionId, TurnId};
use bowline_sbp::lifecycle::Change;
use bowline_sbp::session::{
    Command, DeviceChange, HandOff, IdempotencyKey, Origin, Submit, TokenHash,
};
use uuid::Uuid;

use super::World;
use super::request::submit;
use super::surfaces::Link;
use super::tools::{self, TOOLS};
use crate::random::Random;

/// Programs share this many idempotency keys.
const KEYS: usize = 3;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) kind: Kind,
    /// What it will still do, in order.
    pub(super) script: VecDeque<Intent>,
    /// The request that it waits for.
    pub(super) waits_for: Option<usize>,
    /// Turns that it submitted, in order.
    pub(super) turns: Vec<TurnId>,
    /// Its attachment.
    pub(super) link: Option<Link>,
    /// How often it may still attach.
    pub(super) attaches: u32,
    /// Tool calls that its device has executed.
    pub(super) made: Vec<Uuid>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Program,
    Surface {
        name: Option<&'static str>,
        join: bool,
        take_over: bool,
        tools: bool,
    },
    /// Decides approvals.
    Person,
}

#[derive(Debug, Clone)]
pub(super) enum Intent {
    /// With a shared idempotency key, or without one.
    Submit {
        key: Option<usize>,
        other_body: bool,
        wait: bool,
    },
    /// Sends the same turn again, to get its outcome.
    Repeat(Box<Submit>),
    Await(Box<Submit>),
    Cancel,
    CancelRunning,
    Status(Change),
    Token,
    ForgetDevice,
    CallDevice,
    HandOff,
    Delete,
    /// A surface sends a message.
    Say,
    Confirm,
    Leave,
}

impl Client {
    fn new(kind: Kind, script: Vec<Intent>) -> Self {
        Self {
            kind,
            script: script.into(),
            waits_for: None,
            turns: Vec::new(),
            link: None,
            attaches: 6,
            made: Vec::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.script.is_empty() && self.waits_for.is_none()
    }
}

/// Three programs, three surfaces and a person. The first program creates the session.
pub(super) fn all(random: &mut Random) -> Vec<Client> {
    let surface = |name, join, take_over, tools| Kind::Surface { name, join, take_over, tools };
    let mut clients = vec![Client::new(Kind::Person, Vec::new())];
    for at in 0..3 {
        let mut script: Vec<_> = (0..2 + random.below(4)).map(|_| program(random)).collect();
        if at == 0 {
            script[0] = Intent::Submit { key: Some(0), other_body: false, wait: true };
        }
        clients.push(Client::new(Kind::Program, script));
    }
    for kind in [
        surface(Some("phone"), random.percent(70), false, true),
        surface(Some("desk"), random.percent(50), random.percent(20), random.percent(50)),
        surface(None, random.percent(50), false, random.percent(50)),
    ] {
        let script = (0..2 + random.below(6)).map(|_| person(random)).collect();
        clients.push(Client::new(kind, script));
    }
    clients
}

fn program(random: &mut Random) -> Intent {
    match random.below(100) {
        0..35 => Intent::Submit {
            key: Some(random.below(KEYS)),
            other_body: random.percent(8),
            wait: random.percent(60),
        },
        35..60 => Intent::Submit { key: None, other_body: false, wait: random.percent(70) },
        60..68 => Intent::Cancel,
        68..72 => Intent::CancelRunning,
        72..76 => Intent::Status(Change::Suspend),
        76..80 => Intent::Status(Change::Resumed),
        80..84 => Intent::Token,
        84..86 => Intent::ForgetDevice,
        86..94 => Intent::CallDevice,
        94..98 => Intent::HandOff,
        98 => Intent::Status(Change::Complete),
        _ => Intent::Delete,
    }
}

fn person(random: &mut Random) -> Intent {
    match random.below(100) {
        0..55 => Intent::Say,
        55..75 => Intent::Confirm,
        75..90 => Intent::Cancel,
        _ => Intent::Leave,
    }
}

fn key(number: usize, other_body: bool) -> IdempotencyKey {
    let body_hash = [u8::from(other_body); 32];
    IdempotencyKey { scope: "program".into(), key: format!("key {number}"), body_hash }
}

impl World {
    /// A client sends its next request, or retries one that was lost.
    pub(super) fn client_acts(&mut self, at: usize) {
        if let Some(request) = self.clients[at].waits_for {
            let doubles =
                !self.calm && self.requests[request].may_double() && self.random.percent(10);
            if self.requests[request].lost || doubles {
                self.ask_again(at, request);
            } else {
                self.loses_patience(at, request);
            }
            return;
        }
        // Before the first turn there is no session to attach to.
        if self.store.is_new() && at != 1 {
            return;
        }
        if matches!(self.clients[at].kind, Kind::Person) {
            return self.decide(at);
        }
        if self.must_attach(at) {
            return self.attach(at);
        }
        if let Some(intent) = self.clients[at].script.pop_front() {
            self.begin(at, intent);
        }
    }

    /// Retries a request, except a device's tool call: that one must not be repeated, unless the owner says
    /// that it is left open.
    fn ask_again(&mut self, at: usize, request: usize) {
        match self.requests[request].command {
            Command::CallDevice { .. } => self.finished(at, request),
            _ => self.send(request),
        }
    }

    /// Some callers stop waiting for a device's answer.
    fn loses_patience(&mut self, at: usize, request: usize) {
        if let Command::CallDevice { call } | Command::ResumeCall { call, .. } =
            &self.requests[request].command
            && !self.calm
            && self.random.percent(10)
        {
            let _nobody_waits = self.ask(at, Command::GiveUpCall { call: call.id });
        }
    }

    /// A person decides one of the open approvals.
    fn decide(&mut self, at: usize) {
        let Some(rows) = &self.store.rows else { return };
        let open: Vec<_> = rows
            .asked
            .iter()
            .filter(|row| row.approval.state == ApprovalState::Pending)
            .map(|row| row.approval.approval_id)
            .collect();
        if let Some(approval) = self.random.pick(&open).copied() {
            let (approved, always) = (self.random.percent(75), self.random.percent(30));
            let by = Decider { user: OWNER, credential: "local".into(), from: None };
            let request = self.ask(at, Command::Decide { approval, approved, always, by });
            self.clients[at].waits_for = Some(request);
        }
    }

    fn begin(&mut self, at: usize, intent: Intent) {
        let command = match intent {
            Intent::Submit { key: number, other_body, wait } => {
                let turn = TurnId(self.random.uuid());
                let key = number.map(|number| key(number, other_body));
                Some(Command::Submit(Submit { wait, ..submit(turn, Origin::Http, key) }))
            }
            Intent::Repeat(submit) => Some(Command::Submit(*submit)),
            Intent::Await(submit) => {
                let command = Command::Await { turn: submit.turn };
                self.clients[at].script.push_front(Intent::Repeat(submit));
                Some(command)
            }
            Intent::Cancel => Some(self.cancel(at)),
            Intent::CancelRunning => Some(Command::Cancel { turns: Vec::new(), running: true }),
            Intent::Status(change) => Some(Command::SetStatus(change)),
            Intent::Token => {
                let mut hash = [2; 32];
                hash[..16].copy_from_slice(self.random.uuid().as_bytes());
                Some(Command::Device(DeviceChange::Token {
                    surface_id: "phone".into(),
                    hash: TokenHash(hash),
                    expires_at: self.now().at + Duration::from_secs(3600),
                }))
            }
            Intent::ForgetDevice => {
                Some(Command::Device(DeviceChange::Forget { surface_id: "desk".into() }))
            }
            Intent::CallDevice => Some(self.call_of_device()),
            Intent::HandOff => Some(Command::HandOff(HandOff {
                id: SessionId(self.random.uuid()),
                export_id: ExportId(self.random.uuid()),
                token_hash: TokenHash([3; 32]),
                to_agent: AgentId::fallback(),
                message: None,
                reason: None,
                memory: true,
                key: self.random.percent(50).then(|| key(KEYS, false)),
            })),
            Intent::Delete => Some(Command::Delete),
            Intent::Say => Some(self.say_something(at)),
            Intent::Confirm => self.confirm(at),
            Intent::Leave => {
                self.leave(at);
                None
            }
        };
        let Some(command) = command else { return };
        if let Command::Submit(submit) = &command
            && !self.clients[at].turns.contains(&submit.turn)
        {
            self.clients[at].turns.push(submit.turn);
        }
        let request = self.ask(at, command);
        self.clients[at].waits_for = Some(request);
    }

    fn call_of_device(&mut self) -> Command {
        let on_devices: Vec<_> = TOOLS.iter().filter(|tool| tool.on_device).collect();
        let tool = self.random.pick(&on_devices).unwrap();
        let id = self.random.uuid().to_string();
        let call = ToolCall { id, name: tool.name.into(), arguments: "{}".into() };
        let turn = TurnId(self.random.uuid());
        let now = self.now();
        let call = tools::plan(&mut self.random, turn, 0, call, false, now);
        Command::CallDevice { call: Box::new(call) }
    }
}
