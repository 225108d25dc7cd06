//! Simulated surfaces: attach, send messages, confirm deliveries, and execute tool calls.

use bowline_sbp::id::TurnId;
use bowline_sbp::session::{Attach, Command, Fact, Origin, Reply, Submit};
use bowline_sbp::surface::SurfaceContext;
use serde_json::json;

use super::World;
use super::clients::Kind;
use super::replica::Running;
use super::request::{Travel, submit};
use super::tools;

/// An attachment, as its surface sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) replica: usize,
    pub(super) serial: u64,
    pub(super) epoch: u64,
}

impl World {
    /// The actor that a surface is attached to, while it lives.
    fn actor_of(&self, at: usize) -> Option<(&Running, Link)> {
        let link = self.clients[at].link?;
        let running = self.replicas[link.replica].running.as_ref()?;
        (running.serial == link.serial).then_some((running, link))
    }

    pub(super) fn must_attach(&self, at: usize) -> bool {
        let client = &self.clients[at];
        matches!(client.kind, Kind::Surface { .. })
            && client.link.is_none()
            && !client.script.is_empty()
            && client.attaches > 0
    }

    pub(super) fn attach(&mut self, at: usize) {
        let Kind::Surface { name, join, take_over, tools } = self.clients[at].kind else { return };
        self.clients[at].attaches -= 1;
        let edge = self.random.below(self.replicas.len());
        let edge = self.replicas[edge].id;
        let surface =
            SurfaceContext { surface_id: name.map(str::to_owned), ..SurfaceContext::default() };
        let tools = if tools { tools::of_devices() } else { Vec::new() };
        // The phone uses its own token, once it has one.
        let token = self.store.past.tokens.last().copied();
        let device = token.filter(|_| name == Some("phone") && self.random.percent(50));
        let socket = self.random.uuid();
        let guest = false;
        let attach =
            Attach { socket, edge, surface, tools, device, join, take_over, guest, approver: None };
        let request = self.ask(at, Command::Attach(attach));
        self.clients[at].waits_for = Some(request);
    }

    pub(super) fn attached(&mut self, at: usize, from: (usize, u64), epoch: u64) {
        self.tally.add("attached");
        self.clients[at].link = Some(Link { replica: from.0, serial: from.1, epoch });
    }

    /// A second reply to an answered request: an attachment that the client does not use is closed.
    pub(super) fn answered_before(&mut self, from: (usize, u64), reply: &Reply) {
        let Reply::Attached(attached) = reply else { return };
        let link = Link { replica: from.0, serial: from.1, epoch: attached.epoch };
        if !self.clients.iter().any(|client| client.link == Some(link)) {
            self.gone(link);
        }
    }

    fn gone(&mut self, link: Link) {
        let running = self.replicas[link.replica].running.as_ref();
        if running.is_some_and(|running| running.serial == link.serial) {
            let restarts = self.random.percent(30);
            let fact = Fact::SurfaceGone { epoch: link.epoch, restarts };
            self.travels.push(Travel::Fact { to: link.replica, fact });
        }
    }

    pub(super) fn leave(&mut self, at: usize) {
        if let Some(link) = self.clients[at].link.take() {
            self.say(|| format!("client {at} leaves {link:?}"));
            self.gone(link);
        }
    }

    /// A surface handles the published state: it was closed, its owner is gone, or a tool is
    /// called.
    pub(super) fn surface_looks(&mut self, at: usize) {
        let Some(Link { epoch, .. }) = self.clients[at].link else { return };
        let Some((running, _)) = self.actor_of(at) else {
            self.say(|| format!("client {at} has lost its owner"));
            self.clients[at].link = None;
            return;
        };
        let Some(live) = &running.live else { return };
        if live.gone || live.closed.iter().any(|(closed, _)| *closed == epoch) {
            self.tally.add("closed");
            self.clients[at].link = None;
            return;
        }
        let calls: Vec<_> = live.calls.iter().filter(|call| call.epoch == epoch).cloned().collect();
        let Some(call) = self.random.pick(&calls).cloned() else { return };
        if self.store.past.left_open.contains(&call.call) {
            self.tally.add("open calls sent by the next owner");
        }
        if !self.clients[at].made.contains(&call.call) {
            self.clients[at].made.push(call.call);
            let id = call.input["call"].as_str().unwrap_or_default().to_owned();
            self.runs_call(&call.tool, &id, Some(at));
        }
        // Some devices never answer.
        let silent = call.call.as_bytes()[0] < 40;
        let result = Ok(json!({ "from": at }));
        if !silent && self.random.percent(60) {
            let command = Command::ToolResult { epoch, call: call.call, result };
            let _nobody_waits = self.ask(at, command);
        }
    }

    /// Cancels the turns of this client, and the one that it sees running.
    pub(super) fn cancel(&mut self, at: usize) -> Command {
        let mut turns = self.clients[at].turns.clone();
        let live = self.actor_of(at).and_then(|(running, _)| running.live.as_ref());
        let running = live.and_then(|live| live.turns.iter().find(|turn| turn.running));
        turns.extend(running.map(|turn| turn.id));
        Command::Cancel { turns, running: false }
    }

    pub(super) fn say_something(&mut self, at: usize) -> Command {
        let sender = self.clients[at].link.map(|link| link.epoch);
        let turn = TurnId(self.random.uuid());
        let resume = self.random.percent(50);
        Command::Submit(Submit { sender, resume, ..submit(turn, Origin::Surface, None) })
    }

    pub(super) fn confirm(&mut self, at: usize) -> Option<Command> {
        let (running, Link { epoch, .. }) = self.actor_of(at)?;
        let head = running.live.as_ref()?.head;
        let seq = self.random.below(usize::try_from(head).unwrap() + 1);
        Some(Command::Confirmed { epoch, seq: u64::try_from(seq).unwrap() })
    }
}
