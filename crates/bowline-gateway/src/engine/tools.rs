//! Tools that the gateway runs for a model, and what is put on record around them.
//!
//! Before anything with an effect is done, the log says what is about to be done; after it, what
//! came of it (SBP-L2-14). A crash in between is found at the next start: `remember` is done again,
//! because done twice it is done once, and so is a tool of an MCP server that is known to be like
//! that; any other call is reported to the model as lost, because nobody knows what was done.

use std::sync::Arc;

use bowline_sbp::bundle::LONGEST_MEMORY;
use bowline_sbp::completion::{ToolCall, Usage};
use bowline_sbp::error::Code;
use bowline_sbp::id::{MemoryId, SnapshotId};
use bowline_sbp::message::Message;
use bowline_sbp::surface::SurfaceTool;
use bowline_store::{Advance, EntryKind, MemoryKind, NewEntry, NewMemory, SnapshotKind};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use uuid::Uuid;

use super::device;
use super::histories::History;
use super::request::TurnRequest;
use super::run::Run;
use crate::clock;
use crate::config::Remember;
use crate::hub::{Failure, Link};
use crate::mcp::{Offered, PREFIX, Servers};
use crate::model::Model;

const REMEMBER: &str = "remember";

/// What stands before the name of a surface's tool in a model's tool list (SBP-L5-01).
const SURFACE: &str = "surface_";

/// The tools that a model is offered in this round: ours, and the attached surface's.
#[derive(Debug, Clone, Default)]
pub(super) struct Tools {
    remember: bool,
    link: Option<Arc<Link>>,
    mcp: Vec<Offered>,
    /// How names begin that only MCP servers' tools have, whether they are here or not.
    owned: Vec<String>,
}

impl Tools {
    pub(super) fn offered(
        request: &TurnRequest,
        model: &Model,
        memory: Remember,
        link: Option<Arc<Link>>,
    ) -> Self {
        let wanted = match memory {
            Remember::Never => false,
            Remember::Always => true,
            // Not every model takes tools, so they are offered to those who are known to.
            Remember::Asked => request.remember || matches!(model, Model::Offline(_)),
        };
        let theirs = |link: &Arc<Link>| {
            link.tools.iter().any(|tool| request.speaks_of_tool(&format!("{SURFACE}{}", tool.name)))
        };
        Self {
            remember: wanted && request.recall && !request.speaks_of_tool(REMEMBER),
            link: link.filter(|link| !link.tools.is_empty() && !theirs(link)),
            ..Self::default()
        }
    }

    /// And those of MCP servers (SBP-L5-06).
    pub(super) async fn with_servers(mut self, servers: &Servers, request: &TurnRequest) -> Self {
        self.mcp = servers.offered().await;
        self.mcp.retain(|tool| !request.speaks_of_tool(tool.name()));
        self.owned = servers.prefixes().filter(|prefix| !request.brings_tools(prefix)).collect();
        self
    }

    /// Those of interrupted calls that may be run again.
    pub(super) async fn repeatable(calls: &[ToolCall], servers: &Servers) -> Self {
        // Nobody waits for a server that was not called.
        if !calls.iter().any(|call| call.name.starts_with(PREFIX)) {
            return Self::default();
        }
        let mut mcp = servers.offered_after_all().await;
        mcp.retain(Offered::is_idempotent);
        Self { mcp, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.remember && self.link.is_none() && self.owned.is_empty()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        (self.remember && name == REMEMBER)
            || self.on_surface(name).is_some()
            || self.on_server(name).is_some()
            || self.owns(name)
    }

    /// Whether it is or was the name of an MCP server's tool. A model may know it from earlier on,
    /// and nobody else could answer the call.
    fn owns(&self, name: &str) -> bool {
        self.owned.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// The tool of an MCP server that a model calls by this name.
    fn on_server(&self, name: &str) -> Option<&Offered> {
        self.mcp.iter().find(|tool| tool.name() == name)
    }

    /// The tool of the attached surface that a model calls by this name, and the way to it.
    fn on_surface(&self, name: &str) -> Option<(&SurfaceTool, &Arc<Link>)> {
        let (link, name) = (self.link.as_ref()?, name.strip_prefix(SURFACE)?);
        link.tools.iter().find(|tool| tool.name == name).map(|tool| (tool, link))
    }

    /// As a model's server wants to be told of them.
    pub(super) fn definitions(&self) -> Arc<[Box<RawValue>]> {
        let remember = self.remember.then(|| {
            json!({"type": "function", "function": {
                "name": REMEMBER,
                "description": "Keep something for later conversations: a fact, or what happened.",
                "parameters": {"type": "object", "required": ["text"], "properties": {
                    "text": {"type": "string",
                             "description": "One thing, in a sentence of its own."},
                    "kind": {"type": "string", "enum": ["semantic", "episodic"],
                             "description": "semantic: a fact. episodic: something that happened."},
                }},
            }})
        });
        let surface = self.link.iter().flat_map(|link| &link.tools).map(|tool| {
            let schema = tool.input_schema.clone().unwrap_or_default();
            let any = || json!({"type": "object", "properties": {}});
            let schema = if schema.is_empty() { any() } else { schema.into() };
            let description = tool.description.as_deref().unwrap_or("A tool on the user's device.");
            json!({"type": "function", "function": {
                "name": format!("{SURFACE}{}", tool.name),
                "description": description, "parameters": schema,
            }})
        });
        let all = remember.into_iter().chain(surface);
        let all = all.map(|tool| to_raw_value(&tool).expect("JSON serialises"));
        all.chain(self.mcp.iter().map(Offered::definition)).collect()
    }
}

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

    /// Runs the tools, all at once, and puts on record what came of it. The first answer of each
    /// counts, and each has one by its deadline (G9).
    pub(super) async fn act(
        &mut self,
        calls: Vec<ToolCall>,
        tools: &Tools,
        history: &mut History,
    ) -> Result<(), Failure> {
        let mut memories = Vec::new();
        let mut results = Vec::with_capacity(calls.len());
        let mut errands = Vec::new();
        for (n, call) in calls.iter().enumerate() {
            let result = match call.name.as_str() {
                REMEMBER => self.to_remember(call).map(|memory| {
                    memories.push(memory);
                    json!({"remembered": true})
                }),
                _ => {
                    errands.push((n, call));
                    Ok(Value::Null)
                }
            };
            results.push(result.map_err(str::to_owned));
        }
        let answers =
            errands.into_iter().map(async |(n, call)| (n, self.errand(call, tools).await));
        for (n, answer) in futures_util::future::join_all(answers).await {
            results[n] = answer;
        }
        let results: Vec<_> = std::iter::zip(&calls, results)
            .map(|(call, result)| call.result(&as_content(result)))
            .collect();
        let done = self.log_results(&results, memories).await;
        let results = match done {
            // The agent's memory is full: that is for the model to know, and nothing to fail for.
            Err(full) if full.code == Code::InvalidRequest => {
                let why = as_content(Err(full.message));
                let told = |(call, result): (&ToolCall, Message)| match call.name.as_str() {
                    REMEMBER => call.result(&why),
                    _ => result,
                };
                let results: Vec<_> = std::iter::zip(&calls, results).map(told).collect();
                self.log_results(&results, Vec::new()).await?;
                results
            }
            done => done.map(|()| results)?,
        };
        results.into_iter().for_each(|message| history.push(message.hidden()));
        Ok(())
    }

    /// Has the device or the MCP server do something, and waits for it no longer than it may take
    /// (SBP-L5-03).
    async fn errand(&self, call: &ToolCall, tools: &Tools) -> Result<Value, String> {
        let arguments = if call.arguments.is_empty() { "{}" } else { &call.arguments };
        let input = serde_json::from_str(arguments)
            .map_err(|_| "the arguments are not JSON; call it again".to_owned());
        if let Some(tool) = tools.on_server(&call.name) {
            let Value::Object(input) = input? else {
                return Err("the arguments are not a JSON object; call it again".into());
            };
            return tool.call(input, self.turn.cancelled()).await;
        }
        let Some((tool, link)) = tools.on_surface(&call.name) else {
            return Err(match call.name.starts_with(PREFIX) {
                true if tools.owns(&call.name) => "there is no such tool here now",
                true => "the call is lost: what came of it is not known",
                false => "the call is lost: the device is not here any more",
            }
            .into());
        };
        let input = input?;
        let patience = self.engine.tools.timeout_of(&tool.name);
        device::ask(Arc::clone(link), &tool.name, input, patience, self.turn.cancelled()).await
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
