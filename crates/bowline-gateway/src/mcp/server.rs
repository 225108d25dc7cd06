//! One MCP server: kept running while it is wanted, and called.
//!
//! Started when first wanted. A server that goes away is started again after a pause that doubles,
//! with jitter, up to a cap; meanwhile its tools are not offered, and its health says why. A call
//! never waits for a start: it is answered by a server that is up, or by an error.
//!
//! Invariants
//! - One connection at a time; its program is gone before the next one is started.
//! - A call ends by its deadline, by its server, or by its turn being cancelled, and the server is
//!   told when nobody waits any more (the SDK sends `notifications/cancelled`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rmcp::model::{CallToolRequestParams, CallToolResponse, PaginatedRequestParams};
use rmcp::{ClientCacheConfig, Peer, RoleClient, ServiceError};
use serde_json::{Map, Value};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::answer;
use super::catalogue::{self, Tool};
use super::dial::dial;
use crate::config::mcp::{McpServerConfig, Place};

/// Calls that one server works on at once; more wait, within their own deadlines.
const CALLS: usize = 16;
/// How long a server may take to start, greet and list its tools. Some download themselves first.
const START: Duration = Duration::from_secs(60);
/// How long a list of tools may take once a server is up.
const LIST: Duration = Duration::from_secs(10);
/// How long a connection may take to end in good order.
const END: Duration = Duration::from_secs(4);
/// Pages of tools that are asked for.
const MOST_PAGES: usize = 64;
/// The longest first pause before another try, and the longest of all.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// A server that ran this long was well: its next failure counts as the first.
const WELL: Duration = Duration::from_secs(60);

/// An MCP server of the configuration.
#[derive(Debug)]
pub(crate) struct McpServer {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) settings: McpServerConfig,
    state: watch::Sender<ServerState>,
    wanted: AtomicBool,
    restarts: AtomicU32,
    calls: Semaphore,
}

/// How a server is.
#[derive(Debug, Clone, Default)]
pub(super) enum ServerState {
    /// Nobody has wanted it yet.
    #[default]
    Idle,
    Starting,
    Up(Arc<Live>),
    /// It will be tried again.
    Down {
        why: String,
    },
    /// The gateway stops.
    Stopped,
}

/// A server that is up.
#[derive(Debug)]
pub(super) struct Live {
    peer: Peer<RoleClient>,
    pub(super) tools: Vec<Arc<Tool>>,
    /// Something is wrong with it, or its tools have changed: worth a look.
    look: Arc<Notify>,
}

impl McpServer {
    pub(super) fn new(name: &str, place: Place, settings: &McpServerConfig) -> Self {
        Self {
            name: name.to_owned(),
            place,
            settings: settings.clone(),
            state: watch::Sender::default(),
            wanted: AtomicBool::new(false),
            restarts: AtomicU32::new(0),
            calls: Semaphore::new(CALLS),
        }
    }

    /// Whether this is the first time that someone wants it: then it is to be run.
    pub(super) fn is_newly_wanted(&self) -> bool {
        let first = !self.wanted.swap(true, Ordering::Relaxed);
        if first {
            self.state.send_replace(ServerState::Starting);
        }
        first
    }

    pub(super) fn state(&self) -> ServerState {
        self.state.borrow().clone()
    }

    /// How often it had to be started again.
    pub(super) fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Waits until its first start came to something.
    pub(super) async fn settled(&self) {
        let settled =
            |state: &ServerState| !matches!(state, ServerState::Idle | ServerState::Starting);
        let _ = self.state.subscribe().wait_for(settled).await;
    }

    /// Keeps it running until `stop`.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut failures = 0;
        while !stop.is_cancelled() {
            let begun = Instant::now();
            let why = self.live(&stop).await;
            if stop.is_cancelled() {
                break;
            }
            failures = if begun.elapsed() > WELL { 0 } else { failures };
            let pause = pause(failures);
            failures = failures.saturating_add(1);
            self.restarts.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(server = %self.name, %why, ?pause, "an MCP server is down");
            self.state.send_replace(ServerState::Down { why });
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => {}
            }
        }
        self.state.send_replace(ServerState::Stopped);
    }

    /// One life of it, from its start to its end; says why it ended.
    async fn live(&self, stop: &CancellationToken) -> String {
        let look = Arc::new(Notify::new());
        let end = stop.child_token();
        let starting = async {
            let connection = dial(&self.name, &self.place, &look, &end).await?;
            let peer = connection.service.peer().clone();
            // A list is asked for only when there is a reason to.
            peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
            Ok((connection, peer))
        };
        let (connection, peer) = match tokio::time::timeout(START, starting).await {
            Ok(Ok(up)) => up,
            Ok(Err(why)) => return why,
            Err(_) => return format!("it did not start within {} s", START.as_secs()),
        };
        let watched = async {
            loop {
                match tokio::time::timeout(LIST, list(&peer)).await {
                    Ok(Ok(listed)) => {
                        let tools = catalogue::allowed(&self.name, &self.settings, &listed);
                        let tools = tools.into_iter().map(Arc::new).collect();
                        let live = Live { peer: peer.clone(), tools, look: Arc::clone(&look) };
                        tracing::info!(server = %self.name, tools = live.tools.len(), "an MCP server is up");
                        self.state.send_replace(ServerState::Up(Arc::new(live)));
                    }
                    Ok(Err(_)) | Err(_) => return "it does not say what tools it has",
                }
                look.notified().await;
            }
        };
        let ended = connection.ended();
        tokio::pin!(ended);
        let why = tokio::select! {
            why = &mut ended => return why,
            sick = watched => sick,
            () = stop.cancelled() => "the gateway stops",
        };
        end.cancel();
        // One that cannot be closed in good order is dropped, and its program killed by that.
        let _ = tokio::time::timeout(END, ended).await;
        why.to_owned()
    }

    /// Has it do something. The error is for a model, in words.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        cancelled: impl Future<Output = ()>,
    ) -> Result<Value, String> {
        let patience = self.settings.timeout;
        let begun = Instant::now();
        let call = tokio::time::timeout(patience, self.ask(tool, arguments));
        let outcome = tokio::select! {
            answered = call => answered.unwrap_or_else(|_| {
                Err(format!("the tool did not answer within {} s", patience.as_secs()))
            }),
            () = cancelled => Err("the turn was cancelled".into()),
        };
        metrics::histogram!("bowline_tool_seconds").record(begun.elapsed().as_secs_f64());
        outcome
    }

    async fn ask(&self, tool: &str, arguments: Map<String, Value>) -> Result<Value, String> {
        let gone = || format!("the MCP server `{}` went away before it answered", self.name);
        let _place = self.calls.acquire().await.map_err(|_| gone())?;
        let live = match self.state() {
            ServerState::Up(live) => live,
            ServerState::Down { why } => {
                return Err(format!("the MCP server `{}` is down: {why}", self.name));
            }
            _ => return Err(format!("the MCP server `{}` is not running", self.name)),
        };
        let asked = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        match live.peer.call_tool_once(asked).await {
            Ok(CallToolResponse::Complete(result)) => answer::read(result),
            Ok(_) => Err("the tool wants to be answered first, which nobody can here".into()),
            Err(ServiceError::McpError(error)) => {
                Err(bowline_sbp::surface::description(&error.message))
            }
            Err(_) => {
                live.look.notify_one();
                Err(gone())
            }
        }
    }
}

/// All its tools, page by page, and no more pages than make sense.
async fn list(peer: &Peer<RoleClient>) -> Result<Vec<rmcp::model::Tool>, ServiceError> {
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..MOST_PAGES {
        let asked = PaginatedRequestParams::default().with_cursor(cursor);
        let page = peer.list_tools(Some(asked)).await?;
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(tools)
}

/// How long to wait after that many failures: half of a bound that doubles, and a share of the
/// other half by lot, so that many servers do not come back in one instant.
fn pause(failures: u32) -> Duration {
    let (first, longest) = PAUSE;
    let bound = first.saturating_mul(1 << failures.min(16)).min(longest);
    let lot = getrandom::u32().unwrap_or_default();
    bound.mul_f64(0.5 + f64::from(lot) / 2f64.powi(33))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_cap_and_never_vanish() {
        for failures in 0..40 {
            let bound = (PAUSE.0 * 2u32.pow(failures.min(10))).min(PAUSE.1);
            let pause = pause(failures);
            assert!(pause >= bound / 2 && pause <= bound, "{failures}: {pause:?}");
        }
    }
}
