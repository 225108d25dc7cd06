//! MCP, southbound: the gateway is a client of configured MCP servers, and agents can call their
//! tools (SBP-L5-06). The other direction is `http/mcp`.
//!
//! Apart from the engine, because servers start, crash and restart by themselves: the engine reads
//! the current tool list from memory, and calls tools by name.
//!
//! Invariants
//! - Servers are started when a turn first asks for tools. Turns in the first two seconds wait for
//!   them; later ones do not.
//! - When the gateway has stopped, all servers have stopped, too.

mod answer;
mod call;
mod catalogue;
mod child;
mod dial;
mod handler;
mod health;
mod library;
pub(crate) mod names;
mod needs;
mod server;
mod tasks;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_sbp::error::{Code, Failure};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::catalogue::Tool;
pub use self::health::{Health, NotOffered, ServerView, ToolView};
pub use self::library::LibraryPage;
pub(crate) use self::library::List;
use self::server::{McpServer, ServerState};
use crate::config::mcp::{BadServer, Mcp, McpServerConfig, McpTransport};

/// The name prefix of all tools of MCP servers.
pub(crate) const PREFIX: &str = "mcp_";
/// How long the first turn waits for servers to start.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// How long a retried call waits for its server to start, and how long a health request does.
const AGAIN: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_secs(10);
/// How long servers may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(6);

/// The MCP servers of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    all: Vec<Arc<McpServer>>,
    /// When their tools were first asked for.
    wanted: OnceLock<Instant>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A tool that an agent may call now.
#[derive(Debug, Clone)]
pub(crate) struct Offered {
    server: Arc<McpServer>,
    tool: Arc<Tool>,
}

impl Offered {
    /// The name that models use.
    pub(crate) fn name(&self) -> &str {
        &self.tool.name
    }

    /// The tool definition in OpenAI's format.
    pub(crate) fn definition(&self) -> Box<RawValue> {
        self.tool.definition.clone()
    }

    /// Whether running it twice has the same effect as once.
    pub(crate) fn is_idempotent(&self) -> bool {
        self.tool.idempotent
    }

    /// Whether its server says that it changes nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        self.tool.read_only
    }

    /// The server's name, and the tool's own.
    pub(crate) fn place(&self) -> (&str, &str) {
        (&self.server.name, &self.tool.tool)
    }

    /// All that its server says of it, as JSON text.
    pub(crate) fn pinned(&self) -> String {
        self.tool.pinned.clone()
    }

    /// Calls it. The error is a text for the model.
    pub(crate) async fn call(
        &self,
        arguments: Map<String, Value>,
        cancelled: impl Future<Output = ()>,
    ) -> Result<Value, String> {
        self.server.call(&self.tool, arguments, cancelled).await
    }
}

impl Servers {
    pub(crate) fn new(config: &Mcp) -> Result<Self, BadServer> {
        let server = |(name, settings): (&String, &McpServerConfig)| {
            let place = McpTransport::read(name, settings, |name| std::env::var(name).ok())?;
            Ok(Arc::new(McpServer::new(name, place, settings)))
        };
        let all = config.servers.iter().map(server).collect::<Result<_, _>>()?;
        Ok(Self { all, ..Self::default() })
    }

    /// The tools that are available now. The first call starts the servers; calls within
    /// `FIRST_WAIT` of that wait for them.
    pub(crate) async fn offered(&self) -> Vec<Offered> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let first = *self.wanted.get_or_init(Instant::now);
        self.settled(first + FIRST_WAIT).await;
        self.here()
    }

    /// A tool by name, for a call that cannot go on without it: waits longer for its server.
    pub(crate) async fn tool_after_all(&self, name: &str) -> Option<Offered> {
        self.offered_after_all().await.into_iter().find(|tool| tool.name() == name)
    }

    /// Like [`Servers::offered`], but waits longer for servers that have not started yet.
    pub(crate) async fn offered_after_all(&self) -> Vec<Offered> {
        self.settled(Instant::now() + AGAIN).await;
        self.here()
    }

    /// A server by name, started if it has not been.
    async fn find(&self, name: &str) -> Result<&McpServer, Failure> {
        let Some(server) = self.all.iter().find(|server| server.name == name) else {
            let why = "no MCP server of that name is configured";
            return Err(Failure::new(Code::NotFound, why));
        };
        if server.settings.enabled {
            self.start();
            let _ = tokio::time::timeout(LOOK, server.settled()).await;
        }
        Ok(server)
    }

    /// The tools of one server, which is started if it has not been.
    pub(crate) async fn tools_of(&self, name: &str) -> Result<Vec<Offered>, Failure> {
        self.find(name).await?;
        let mut tools = self.here();
        tools.retain(|tool| tool.server.name == name);
        Ok(tools)
    }

    /// The name prefixes of all enabled servers, connected or not.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = String> {
        let enabled = self.all.iter().filter(|server| server.settings.enabled);
        enabled.map(|server| format!("{PREFIX}{}_", server.name))
    }

    /// Starts the servers that have not been started.
    fn start(&self) {
        for server in self.all.iter().filter(|server| server.settings.enabled) {
            if !self.stop.is_cancelled() && server.is_newly_wanted() {
                self.tasks.spawn(Arc::clone(server).run(self.stop.clone()));
            }
        }
    }

    async fn settled(&self, deadline: Instant) {
        self.start();
        for server in self.all.iter().filter(|server| server.settings.enabled) {
            let _ = tokio::time::timeout_at(deadline, server.settled()).await;
        }
    }

    fn here(&self) -> Vec<Offered> {
        let tools = |server: &Arc<McpServer>| match server.state() {
            ServerState::Up(live) => live.tools.clone(),
            _ => Vec::new(),
        };
        let offered = |server: &Arc<McpServer>| {
            let tools = tools(server).into_iter();
            let server = Arc::clone(server);
            tools.map(move |tool| Offered { server: Arc::clone(&server), tool })
        };
        self.all.iter().flat_map(offered).collect()
    }

    /// The health of all servers. Starts those that have not been started.
    pub(crate) async fn health(&self) -> Health {
        self.settled(Instant::now() + LOOK).await;
        Health { servers: self.all.iter().map(|server| ServerView::of(server)).collect() }
    }

    /// Stops all servers.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(STOP_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!("some MCP servers did not end in time; they are killed");
        }
    }
}
