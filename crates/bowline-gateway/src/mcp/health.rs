//! The health of the MCP servers, for operators.

use serde::Serialize;
use utoipa::ToSchema;

use super::server::{Live, McpServer, ServerState};

/// `GET /v1/mcp/servers`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    pub servers: Vec<ServerView>,
}

/// One server.
#[derive(Debug, Serialize, ToSchema)]
pub struct ServerView {
    pub name: String,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// `up`, `starting`, `down`, `off` (not enabled) or `idle`.
    pub status: &'static str,
    /// Why it is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How often it was restarted.
    pub restarts: u32,
    /// The tools that agents may call now.
    pub tools: Vec<ToolView>,
    /// Tools that are not offered to agents, because they need what this gateway does not offer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_offered: Vec<NotOffered>,
    /// Whether it has prompts.
    pub prompts: bool,
    /// Whether it has resources.
    pub resources: bool,
}

/// A tool that is not offered to agents.
#[derive(Debug, Serialize, ToSchema)]
pub struct NotOffered {
    /// The name that its server uses.
    pub tool: String,
    pub why: String,
}

/// One tool.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolView {
    /// The name that models use.
    pub name: String,
    /// The name that its server uses.
    pub tool: String,
    pub description: String,
    /// Whether a call that a crash interrupted is retried.
    pub idempotent: bool,
}

impl ServerView {
    pub(super) fn of(server: &McpServer) -> Self {
        let (status, why, live) = match server.state() {
            _ if !server.settings.enabled => ("off", None, None),
            ServerState::Idle | ServerState::Stopped => ("idle", None, None),
            ServerState::Starting => ("starting", None, None),
            ServerState::Up(live) => ("up", None, Some(live)),
            ServerState::Down { why } => ("down", Some(why), None),
        };
        let live = live.as_deref();
        let not_offered = live.iter().flat_map(|live| &live.not_offered);
        let not_offered = not_offered
            .map(|(tool, need)| NotOffered { tool: tool.clone(), why: need.to_string() });
        let tools = live.iter().flat_map(|live| &live.tools);
        let tools = tools.map(|tool| ToolView {
            name: tool.name.clone(),
            tool: tool.tool.clone(),
            description: tool.description.clone(),
            idempotent: tool.idempotent,
        });
        Self {
            name: server.name.clone(),
            transport: server.place.transport(),
            status,
            why,
            restarts: server.restarts(),
            tools: tools.collect(),
            not_offered: not_offered.collect(),
            prompts: live.is_some_and(Live::has_prompts),
            resources: live.is_some_and(Live::has_resources),
        }
    }
}
