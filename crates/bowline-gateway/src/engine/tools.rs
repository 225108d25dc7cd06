//! The tools that a model is offered in a turn: the gateway's, the attached surface's, and those of
//! MCP servers.

use std::sync::Arc;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::request::TurnRequest;
use crate::config::{self, Policy, Remember};
use crate::hub::Link;
use crate::mcp::{Offered, PREFIX, Servers};
use crate::model::Model;

pub(super) const REMEMBER: &str = "remember";

/// What stands before the name of a surface's tool in a model's tool list (SBP-L5-01).
pub(super) const SURFACE: &str = "surface_";

/// The tools that a model is offered in this round.
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
    pub(super) async fn with_servers(
        mut self,
        servers: &Servers,
        rules: &config::Tools,
        request: &TurnRequest,
    ) -> Self {
        self.mcp = servers.offered().await;
        self.mcp.retain(|tool| {
            !request.speaks_of_tool(tool.name()) && rules.policy_of(tool.name()) != Policy::Deny
        });
        self.owned = servers.prefixes().filter(|prefix| !request.brings_tools(prefix)).collect();
        self
    }

    /// Those of servers, for calls that a crash has interrupted.
    pub(super) async fn for_interrupted(
        mut calls: impl Iterator<Item = &str>,
        servers: &Servers,
    ) -> Self {
        // Nobody waits for a server that was not called.
        if !calls.any(|name| name.starts_with(PREFIX)) {
            return Self::default();
        }
        Self { mcp: servers.offered_after_all().await, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.remember && self.link.is_none() && self.owned.is_empty()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        (self.remember && name == REMEMBER)
            || self.is_on_surface(name)
            || self.on_server(name).is_some()
            || self.owns(name)
    }

    /// Whether it is or was the name of an MCP server's tool. A model may know it from earlier on,
    /// and nobody else could answer the call.
    fn owns(&self, name: &str) -> bool {
        self.owned.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// The tool of an MCP server that a model calls by this name.
    pub(super) fn on_server(&self, name: &str) -> Option<&Offered> {
        self.mcp.iter().find(|tool| tool.name() == name)
    }

    fn is_on_surface(&self, name: &str) -> bool {
        let (Some(link), Some(name)) = (&self.link, name.strip_prefix(SURFACE)) else {
            return false;
        };
        link.tools.iter().any(|tool| tool.name == name)
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
