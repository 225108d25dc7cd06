//! The health of the MCP servers, for operators.

use serde::Serialize;
use utoipa::ToSchema;

use super::server::{McpServer, ServerState};

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
        let (status, why, tools) = match server.state() {
            _ if !server.settings.enabled => ("off", None, Vec::new()),
            ServerState::Idle | ServerState::Stopped => ("idle", None, Vec::new()),
            ServerState::Starting => ("starting", None, Vec::new()),
            ServerState::Up(live) => ("up", None, live.tools.clone()),
            ServerState::Down { why } => ("down", Some(why), Vec::new()),
        };
        let tools = tools.iter().map(|tool| ToolView {
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
        }
    }
}
