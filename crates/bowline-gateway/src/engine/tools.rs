//! The tools that a model is offered in a turn: the gateway's own, those of attached surfaces, and
//! those of MCP servers.

use std::collections::HashMap;
use std::sync::Arc;

use bowline_sbp::approval::DefinitionChange;
use bowline_sbp::session::{LiveSurface, TurnRequest};
use bowline_sbp::surface::SurfaceTool;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::Engine;
use super::policy::{Ruling, ToolContext};
use crate::config::{Policy, Remember};
use crate::mcp::{Offered, PREFIX, Servers, names};
use crate::model::Model;

pub(super) const REMEMBER: &str = "remember";

/// The prefix of a surface's tool in a model's tool list (SBP-L5-01).
pub(super) const SURFACE: &str = "surface_";

/// The tools that a model is offered in this round.
#[derive(Debug, Clone, Default)]
pub(super) struct OfferedTools {
    remember: bool,
    /// The name that models use, and the tool.
    surface: Vec<(String, SurfaceTool)>,
    mcp: Vec<Offered>,
    /// Name prefixes that belong to configured MCP servers, whether or not these are connected.
    owned: Vec<String>,
    /// Tools whose definition is not the pinned one.
    changed: HashMap<String, DefinitionChange>,
}

impl OfferedTools {
    pub(super) fn offered(
        request: &TurnRequest,
        model: &Model,
        memory: Remember,
        surfaces: &[LiveSurface],
    ) -> Self {
        let wanted = match memory {
            Remember::Never => false,
            Remember::Always => true,
            // Not every model supports tools, so `remember` is offered only to models that are
            // known to.
            Remember::Asked => request.remember || matches!(model, Model::Offline(_)),
        };
        let mut surface = declared(surfaces);
        surface.retain(|(name, _)| !brings_tool(request, name));
        Self {
            remember: wanted && request.recall && !speaks_of_tool(request, REMEMBER),
            surface,
            ..Self::default()
        }
    }

    /// Adds the tools of MCP servers (SBP-L5-06).
    pub(super) async fn with_servers(mut self, servers: &Servers, request: &TurnRequest) -> Self {
        self.mcp = servers.offered().await;
        self.mcp.retain(|tool| !speaks_of_tool(request, tool.name()));
        self.owned = servers.prefixes().filter(|prefix| !brings_tools(request, prefix)).collect();
        self
    }

    /// Leaves out what the rules deny, and notes which definitions have changed.
    pub(super) async fn judged(
        mut self,
        engine: &Engine,
        who: &ToolContext,
    ) -> bowline_store::Result<Self> {
        self.changed = engine.pins.changes(&*engine.store, &self.mcp).await?;
        let is_denied = |ruling: Ruling| ruling.policy == Policy::Deny;
        let judged = self.clone();
        self.mcp.retain(|tool| !is_denied(engine.ruling_on_server(who, tool.name(), &judged)));
        self.surface.retain(|(_, tool)| !is_denied(engine.ruling_on_device(who, &tool.name)));
        Ok(self)
    }

    /// How the definition of a server's tool has changed, if it has.
    pub(super) fn change_of(&self, name: &str) -> Option<&DefinitionChange> {
        self.changed.get(name)
    }

    /// The tools of MCP servers, for calls that a crash has interrupted.
    pub(super) async fn for_interrupted(
        mut calls: impl Iterator<Item = &str>,
        servers: &Servers,
    ) -> Self {
        // Do not wait for servers if none of their tools was called.
        if !calls.any(|name| name.starts_with(PREFIX)) {
            return Self::default();
        }
        Self::of_servers(servers.offered_after_all().await)
    }

    /// Tools of servers alone.
    pub(super) fn of_servers(mcp: Vec<Offered>) -> Self {
        Self { mcp, ..Self::default() }
    }

    /// The names of servers' tools that models use.
    pub(super) fn server_names(&self) -> impl Iterator<Item = &str> {
        self.mcp.iter().map(Offered::name)
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.remember && self.surface.is_empty() && self.owned.is_empty()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        (self.remember && name == REMEMBER)
            || self.on_surface(name).is_some()
            || self.on_server(name).is_some()
            || self.owns(name)
    }

    /// Whether the name belongs to an MCP server, connected or not. A model may know it from
    /// earlier rounds, and only the gateway can answer the call.
    fn owns(&self, name: &str) -> bool {
        self.owned.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// The tool of an MCP server that a model calls by this name.
    pub(super) fn on_server(&self, name: &str) -> Option<&Offered> {
        self.mcp.iter().find(|tool| tool.name() == name)
    }

    /// What the device calls the tool that a model calls by this name.
    pub(super) fn on_surface(&self, name: &str) -> Option<&str> {
        let found = self.surface.iter().find(|(known, _)| known == name);
        found.map(|(_, tool)| tool.name.as_str())
    }

    /// The tool definitions in OpenAI's format.
    pub(super) fn definitions(&self) -> Arc<[Box<RawValue>]> {
        let remember = self.remember.then(|| {
            json!({"type": "function", "function": {
                "name": REMEMBER,
                "description": "Keep something for later conversations: a fact, what happened, or \
                                how things are done.",
                "parameters": {"type": "object", "required": ["text"], "properties": {
                    "text": {"type": "string",
                             "description": "One thing, in a sentence of its own."},
                    "kind": {"type": "string", "enum": ["semantic", "episodic", "procedural"],
                             "description": "semantic: a fact. episodic: something that happened. \
                                             procedural: a rule or steps to follow."},
                }},
            }})
        });
        let surface = self.surface.iter().map(|(name, tool)| {
            let schema = tool.input_schema.clone().unwrap_or_default();
            let any = || json!({"type": "object", "properties": {}});
            let schema = if schema.is_empty() { any() } else { schema.into() };
            let description = tool.description.as_deref().unwrap_or("A tool on the user's device.");
            json!({"type": "function", "function": {
                "name": name, "description": description, "parameters": schema,
            }})
        });
        let all = remember.into_iter().chain(surface);
        let all = all.map(|tool| to_raw_value(&tool).expect("JSON serialises"));
        all.chain(self.mcp.iter().map(Offered::definition)).collect()
    }
}

/// The tools of all surfaces, each name once: the surface that attached last provides it. Names
/// that model servers do not accept are replaced by valid ones.
fn declared(surfaces: &[LiveSurface]) -> Vec<(String, SurfaceTool)> {
    let mut newest: Vec<_> = surfaces.iter().collect();
    newest.sort_by_key(|surface| std::cmp::Reverse(surface.epoch));
    let mut tools: Vec<SurfaceTool> = Vec::new();
    for tool in newest.into_iter().flat_map(|surface| surface.tools.iter()) {
        if !tools.iter().any(|known| known.name == tool.name) {
            tools.push(tool.clone());
        }
    }
    let prefix = SURFACE.trim_end_matches('_');
    let names = names::named(prefix, tools.iter().map(|tool| tool.name.as_str()));
    std::iter::zip(names, tools).collect()
}

/// Whether the caller's request has a tool of that name, or sets `tool_choice`.
fn speaks_of_tool(request: &TurnRequest, name: &str) -> bool {
    let choice = request.param("tool_choice");
    choice.is_some_and(|choice| choice != "\"auto\"" && choice != "null")
        || brings_tool(request, name)
}

/// Whether the caller's request has a tool of that name.
fn brings_tool(request: &TurnRequest, name: &str) -> bool {
    brings_tools(request, &format!("{name}\""))
}

/// Whether the caller's request has tools whose names begin with `prefix`.
fn brings_tools(request: &TurnRequest, prefix: &str) -> bool {
    request.param("tools").is_some_and(|tools| tools.contains(&format!("\"{prefix}")))
}
