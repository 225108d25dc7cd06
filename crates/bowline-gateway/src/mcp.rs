//! MCP, southbound: the gateway is a client of configured MCP servers, and their tools are agents'
//! tools (SBP-L5-06). The other direction is `http/mcp`.
//!
//! Apart from the engine, because servers come and go by themselves: the engine asks what there is
//! now, from memory, and calls it by name.
//!
//! Invariants
//! - Servers are started when the first turn wants tools; that turn waits for them a moment, no
//!   other one does.
//! - When the gateway has stopped, so have they.

mod answer;
mod catalogue;
mod child;
mod dial;
mod health;
pub(crate) mod names;
mod server;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::catalogue::Tool;
pub use self::health::{Health, ServerView, ToolView};
use self::server::{McpServer, ServerState};
use crate::config::mcp::{BadServer, Mcp, McpServerConfig, Place};

/// What stands before the names of all tools of MCP servers.
pub(crate) const PREFIX: &str = "mcp_";
/// How long the first turn waits for servers to come up.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// How long a call waits that is to be run again, and how long those who ask how servers are.
const AGAIN: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_secs(10);
/// How long servers may take to end.
const FAREWELL: Duration = Duration::from_secs(6);

/// The MCP servers of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    all: Vec<Arc<McpServer>>,
    /// When they were first wanted.
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
    /// What models call it.
    pub(crate) fn name(&self) -> &str {
        &self.tool.name
    }

    /// As a model's server wants to be told of it.
    pub(crate) fn definition(&self) -> Box<RawValue> {
        self.tool.definition.clone()
    }

    /// Whether running it twice does what running it once does.
    pub(crate) fn is_idempotent(&self) -> bool {
        self.tool.idempotent
    }

    /// Calls it. The error is for a model, in words.
    pub(crate) async fn call(
        &self,
        arguments: Map<String, Value>,
        cancelled: impl Future<Output = ()>,
    ) -> Result<Value, String> {
        self.server.call(&self.tool.tool, arguments, cancelled).await
    }
}

impl Servers {
    pub(crate) fn new(config: &Mcp) -> Result<Self, BadServer> {
        let server = |(name, settings): (&String, &McpServerConfig)| {
            let place = Place::read(name, settings, |name| std::env::var(name).ok())?;
            Ok(Arc::new(McpServer::new(name, place, settings)))
        };
        let all = config.servers.iter().map(server).collect::<Result<_, _>>()?;
        Ok(Self { all, ..Self::default() })
    }

    /// The tools there are now. Whoever asks first starts the servers; for a moment from then on,
    /// asking waits for them.
    pub(crate) async fn offered(&self) -> Vec<Offered> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let first = *self.wanted.get_or_init(Instant::now);
        self.settled(first + FIRST_WAIT).await;
        self.here()
    }

    /// A tool that cannot be done without.
    pub(crate) async fn tool_after_all(&self, name: &str) -> Option<Offered> {
        self.offered_after_all().await.into_iter().find(|tool| tool.name() == name)
    }

    /// The same for those who cannot do without: waits longer for what has not come up yet.
    pub(crate) async fn offered_after_all(&self) -> Vec<Offered> {
        self.settled(Instant::now() + AGAIN).await;
        self.here()
    }

    /// How the names of all their tools begin, also of those that are not here now.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = String> {
        let enabled = self.all.iter().filter(|server| server.settings.enabled);
        enabled.map(|server| format!("{PREFIX}{}_", server.name))
    }

    async fn settled(&self, deadline: Instant) {
        for server in self.all.iter().filter(|server| server.settings.enabled) {
            if !self.stop.is_cancelled() && server.is_newly_wanted() {
                self.tasks.spawn(Arc::clone(server).run(self.stop.clone()));
            }
        }
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

    /// How they are. Starts those that have not been wanted yet.
    pub(crate) async fn health(&self) -> Health {
        self.settled(Instant::now() + LOOK).await;
        Health { servers: self.all.iter().map(|server| ServerView::of(server)).collect() }
    }

    /// Ends them all.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(FAREWELL, self.tasks.wait()).await.is_err() {
            tracing::warn!("some MCP servers did not end in time; they are killed");
        }
    }
}
