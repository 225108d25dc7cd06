//! Running the tools that a model calls, and what is put on record around them.
//!
//! Before anything with an effect is done, the log says what is about to be done; after it, what
//! came of it, call by call (SBP-L2-14). A crash in between is found at the next start. What has a
//! result is not done again. `remember` is, because done twice it is done once, and so is a tool that
//! is declared to be like that. A call that waited for a person's leave goes on waiting. Every other
//! one is reported to the model as lost, because nobody knows what the device did.

use bowline_sbp::bundle::LONGEST_MEMORY;
use bowline_sbp::completion::{ToolCall, Usage};
use bowline_sbp::conversation::{Interrupted, interrupted};
use bowline_sbp::error::Code;
use bowline_sbp::id::{MemoryId, Seq, SnapshotId};
use bowline_sbp::message::Message;
use bowline_store::{Advance, EntryKind, MemoryKind, NewEntry, NewMemory, SnapshotKind};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::approvals::Leave;
use super::device;
use super::histories::History;
use super::run::Run;
use super::tools::{REMEMBER, SURFACE, Tools};
use super::{Engine, stopping};
use crate::clock;
use crate::config::Policy;
use crate::hub::{Channel, Failure, LiveTurn};
use crate::mcp::{Offered, PREFIX};

const GONE: &str = "there is no such tool here now";
const LOST: &str = "the call is lost: nobody knows what came of it";

/// Where calls are on record, and whether a process that is gone may have made them.
#[derive(Debug, Clone, Copy)]
struct Place {
    seq: Seq,
    after_crash: bool,
}

/// Who makes a call, and how the tool is called there.
#[derive(Debug, Clone, Copy)]
enum Maker<'a> {
    Device(&'a str),
    Server(&'a str),
}

/// A call to be run, and the how-manieth it is of those that were made together.
type Numbered = (u32, ToolCall);

/// A result as models read it: text is text, the rest is JSON.
fn as_content(result: Result<Value, String>) -> String {
    match result {
        Ok(Value::String(text)) => text,
        Ok(value) => value.to_string(),
        Err(why) => json!({ "error": why }).to_string(),
    }
}

#[derive(Deserialize)]
struct ToRemember {
    text: String,
    #[serde(default)]
    kind: Option<String>,
}

impl Run<'_> {
    /// Puts on record what is about to be done.
    pub(super) async fn log_calls(
        &mut self,
        calls: &[ToolCall],
        usage: Usage,
        history: &mut History,
    ) -> Result<(), Failure> {
        let cost_usd = self.engine.models.cost(&self.request.model, &usage);
        self.spent_usd += cost_usd;
        let message = ToolCall::message(calls);
        let call = NewEntry {
            model: Some(self.request.model.clone()),
            cost_usd,
            agent_id: self.request.agent_id.clone(),
            ..NewEntry::new(EntryKind::Action, message.clone())
        };
        let mut entries = self.take_new();
        entries.push(call);
        self.advance(entries, SnapshotKind::PreAction, Vec::new()).await?;
        history.push(message.hidden());
        Ok(())
    }

    /// Runs the tools, all at once, and puts on record what came of each. The first answer of each
    /// counts, and each has one by its deadline (G9).
    pub(super) async fn act(
        &mut self,
        calls: Vec<ToolCall>,
        tools: &Tools,
        history: &mut History,
    ) -> Result<(), Failure> {
        let calls = (0..).zip(calls).collect();
        let place = Place { seq: self.session.last_seq, after_crash: false };
        self.run_calls(calls, place, tools, history).await
    }

    /// Does what a crash has left of the calls at the end of the log.
    pub(super) async fn act_again(&mut self, history: &mut History) -> Result<(), Failure> {
        let Interrupted { calls, results } = interrupted(history.messages());
        let names = calls.iter().map(|(_, call)| call.name.as_str());
        let tools = Tools::for_interrupted(names, &self.engine.mcp).await;
        let place = Place { seq: self.session.last_seq - results, after_crash: true };
        self.run_calls(calls, place, &tools, history).await
    }

    /// Runs calls that are on record there.
    async fn run_calls(
        &mut self,
        calls: Vec<Numbered>,
        place: Place,
        tools: &Tools,
        history: &mut History,
    ) -> Result<(), Failure> {
        let (ours, others): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|(_, call)| call.name == REMEMBER);
        if !ours.is_empty() {
            self.remember_all(ours, history).await?;
        }
        let (engine, turn, channel) = (self.engine, self.turn, self.channel);
        let errands = Errands { engine, turn, channel, tools, place };
        let mut running: FuturesUnordered<_> = others
            .into_iter()
            .map(|(n, call)| {
                let errands = &errands;
                async move {
                    let outcome = errands.run(n, &call).await;
                    (call, outcome)
                }
            })
            .collect();
        let mut stopped = false;
        while let Some(first) = running.next().await {
            let mut results = Vec::new();
            let mut next = Some(first);
            // What is done at the same time is written at once.
            while let Some((call, outcome)) = next {
                match outcome {
                    Some(result) => results.push(call.result(&as_content(result))),
                    None => stopped = true,
                }
                next = running.next().now_or_never().flatten();
            }
            if !results.is_empty() {
                self.log_results(&results, Vec::new()).await?;
                results.into_iter().for_each(|message| history.push(message.hidden()));
            }
        }
        // The turn is left as it stands, for the next process.
        if stopped { Err(stopping()) } else { Ok(()) }
    }

    async fn remember_all(
        &mut self,
        calls: Vec<Numbered>,
        history: &mut History,
    ) -> Result<(), Failure> {
        let mut memories = Vec::new();
        let mut results = Vec::with_capacity(calls.len());
        for (_, call) in &calls {
            let result = self.to_remember(call).map(|memory| {
                memories.push(memory);
                json!({"remembered": true})
            });
            results.push(call.result(&as_content(result.map_err(str::to_owned))));
        }
        match self.log_results(&results, memories).await {
            // The agent's memory is full: that is for the model to know, and nothing to fail for.
            Err(full) if full.code == Code::InvalidRequest => {
                let why = as_content(Err(full.message));
                results = calls.iter().map(|(_, call)| call.result(&why)).collect();
                self.log_results(&results, Vec::new()).await?;
            }
            done => done?,
        }
        results.into_iter().for_each(|message| history.push(message.hidden()));
        Ok(())
    }

    async fn log_results(
        &mut self,
        results: &[Message],
        memories: Vec<NewMemory>,
    ) -> Result<(), Failure> {
        let entries = results.iter().cloned();
        let entries = entries.map(|message| NewEntry::new(EntryKind::Action, message));
        self.advance(entries.collect(), SnapshotKind::PostAction, memories).await
    }

    fn to_remember(&self, call: &ToolCall) -> Result<NewMemory, &'static str> {
        let asked: ToRemember = serde_json::from_str(&call.arguments).map_err(
            |_| "remember takes {\"text\": \"…\", \"kind\": \"semantic\" or \"episodic\"}",
        )?;
        let text = asked.text.trim();
        if text.is_empty() || text.len() > LONGEST_MEMORY {
            return Err("`text` must be one thing, in a sentence");
        }
        let kind = asked.kind.as_deref().map_or(Some(MemoryKind::Semantic), MemoryKind::named);
        Ok(NewMemory {
            id: MemoryId(Uuid::now_v7()),
            kind: kind.ok_or("`kind` is semantic or episodic")?,
            text: text.to_owned(),
            session_id: Some(self.session.id),
            at: clock::now(),
        })
    }

    async fn advance(
        &mut self,
        entries: Vec<NewEntry>,
        kind: SnapshotKind,
        memories: Vec<NewMemory>,
    ) -> Result<(), Failure> {
        let advance = Advance {
            turn_id: self.turn.id,
            owner: self.engine.instance,
            entries,
            snapshot: (kind, SnapshotId(Uuid::now_v7())),
            memories: Some((self.agent().clone(), memories)).filter(|(_, all)| !all.is_empty()),
            at: clock::now(),
        };
        let write = || self.engine.store.advance_turn(advance.clone());
        self.session = self.engine.patiently(self.turn, write).await?;
        self.advanced = true;
        self.turn.set_seq(self.session.last_seq + 1);
        Ok(())
    }
}

/// Calls that others carry out: devices, and servers of tools.
struct Errands<'a> {
    engine: &'a Engine,
    turn: &'a LiveTurn,
    channel: &'a Channel,
    tools: &'a Tools,
    place: Place,
}

impl Errands<'_> {
    /// What came of a call; none if the gateway stops and the call waits for the next one.
    async fn run(&self, n: u32, call: &ToolCall) -> Option<Result<Value, String>> {
        let lost = || Some(Err(LOST.to_owned()));
        let on_server = self.tools.on_server(&call.name);
        let maker = match call.name.strip_prefix(SURFACE) {
            Some(tool) => Maker::Device(tool),
            None if on_server.is_some() => Maker::Server(&call.name),
            // A server takes its time to start, and a person to agree: it is looked for later.
            None if self.place.after_crash && call.name.starts_with(PREFIX) => {
                Maker::Server(&call.name)
            }
            None => return Some(Err(GONE.into())),
        };
        let arguments = if call.arguments.is_empty() { "{}" } else { &call.arguments };
        let Ok(input) = serde_json::from_str::<Value>(arguments) else {
            return Some(Err("the arguments are not JSON; call it again".into()));
        };
        let rules = &self.engine.tools;
        let (name, again, policy) = match maker {
            Maker::Device(tool) => (tool, rules.is_idempotent(tool), rules.policy_of_surface(tool)),
            Maker::Server(tool) => {
                (tool, on_server.is_some_and(Offered::is_idempotent), rules.policy_of(tool))
            }
        };
        match policy {
            Policy::Deny => return Some(Err("this tool may not be called here".into())),
            Policy::Allow if self.place.after_crash && !again => return lost(),
            Policy::Allow => {}
            Policy::Ask => {
                let (session, turn) = (self.turn.session, self.turn.id);
                let place = (self.place.seq, n);
                let question = self.engine.question(session, turn, place, name, input.clone());
                match self.engine.leave(question, self.channel, self.turn.cancelled()).await {
                    Leave::Granted => {}
                    Leave::MadeBefore if again => {}
                    Leave::MadeBefore => return lost(),
                    Leave::Refused(why) => return Some(Err(why.into())),
                    Leave::Stopping => return None,
                }
            }
        }
        Some(self.make(maker, input).await)
    }

    async fn make(&self, maker: Maker<'_>, input: Value) -> Result<Value, String> {
        match (maker, input) {
            (Maker::Server(name), Value::Object(input)) => {
                let tool = match self.tools.on_server(name) {
                    Some(tool) => tool.clone(),
                    None => self.engine.mcp.tool_after_all(name).await.ok_or(GONE)?,
                };
                tool.call(input, self.turn.cancelled()).await
            }
            (Maker::Server(_), _) => {
                Err("the arguments are not a JSON object; call it again".into())
            }
            (Maker::Device(tool), input) => {
                let rules = &self.engine.tools;
                let patience = rules.timeout_of(tool);
                // After a crash no device is here yet: that was our doing, so it gets its time to
                // return.
                let wait = if self.place.after_crash { patience } else { rules.wait_for_surface };
                let call = device::Call { channel: self.channel, tool, input, patience, wait };
                call.make(self.turn.cancelled()).await
            }
        }
    }
}
