//! One MCP server: started and restarted.
//!
//! Started when its tools are first asked for. A server that disconnects is restarted with
//! exponential back-off and jitter; meanwhile its tools are not offered, and its health says why. A
//! call never waits for a start: it fails if the server is not up.
//!
//! Invariant: one connection at a time; the old child process has ended before the next one is
//! started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rmcp::model::{ErrorCode, PaginatedRequestParams, Tool as LibraryPage};
use rmcp::{ClientCacheConfig, Peer, RoleClient, ServiceError};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::catalogue::{self, Tool};
use super::dial::dial;
use super::handler::Handler;
use super::needs::{Need, Needs};
use crate::config::mcp::{McpServerConfig, McpTransport};

/// Concurrent calls to one server; further calls wait, within their own timeouts.
const CALLS: usize = 16;
/// How long a server may take to start and connect. Some are downloaded first.
const START: Duration = Duration::from_secs(60);
/// How long listing the tools may take.
const LIST: Duration = Duration::from_secs(10);
/// How long a connection may take to close.
const END: Duration = Duration::from_secs(4);
/// The most pages of tools that are requested.
const MOST_PAGES: usize = 64;
/// The back-off before a restart: the upper bound of the first pause, and of any pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// A server that ran this long was healthy: the back-off starts anew.
const WELL: Duration = Duration::from_secs(60);

/// An MCP server of the configuration.
#[derive(Debug)]
pub(crate) struct McpServer {
    pub(super) name: String,
    pub(super) place: McpTransport,
    pub(super) settings: McpServerConfig,
    state: watch::Sender<ServerState>,
    wanted: AtomicBool,
    restarts: AtomicU32,
    pub(super) calls: Semaphore,
}

#[derive(Debug, Clone, Default)]
pub(super) enum ServerState {
    /// Its tools have not been asked for yet.
    #[default]
    Idle,
    Starting,
    Up(Arc<Live>),
    /// It will be restarted.
    Down {
        why: String,
    },
    /// The gateway stops.
    Stopped,
}

/// A server that is up.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) peer: Peer<RoleClient>,
    pub(super) tools: Vec<Arc<Tool>>,
    /// Tools that need what the gateway does not offer.
    pub(super) not_offered: Vec<(String, Need)>,
    /// Wakes the server's task to list the tools again: they have changed, or a call has failed.
    pub(super) look: Arc<Notify>,
    pub(super) needs: Arc<Needs>,
}

impl Live {
    pub(super) fn has_prompts(&self) -> bool {
        self.peer.peer_info().is_some_and(|info| info.capabilities.prompts.is_some())
    }

    pub(super) fn has_resources(&self) -> bool {
        self.peer.peer_info().is_some_and(|info| info.capabilities.resources.is_some())
    }
}

impl McpServer {
    pub(super) fn new(name: &str, place: McpTransport, settings: &McpServerConfig) -> Self {
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

    /// Whether its tools are asked for for the first time: the caller then has to run it.
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

    /// How often it was restarted.
    pub(super) fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Waits until its first start has succeeded or failed.
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
            let why = self.connection(&stop).await;
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

    /// The connection, if it is up. The error says why it is not.
    pub(super) fn live(&self) -> Result<Arc<Live>, String> {
        match self.state() {
            ServerState::Up(live) => Ok(live),
            ServerState::Down { why } => {
                Err(format!("the MCP server `{}` is down: {why}", self.name))
            }
            _ if !self.settings.enabled => {
                Err(format!("the MCP server `{}` is not enabled", self.name))
            }
            _ => Err(format!("the MCP server `{}` is not running", self.name)),
        }
    }

    /// Runs one connection from start to end; returns why it ended.
    async fn connection(&self, stop: &CancellationToken) -> String {
        let handler = Handler::default();
        let end = stop.child_token();
        let starting = async {
            let connection = dial(&self.name, &self.place, &handler, &end).await?;
            let peer = connection.service.peer().clone();
            // The tools are listed only when they may have changed, so a cached list would be
            // stale.
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
                        let live = self.offering(&peer, listed, &handler);
                        tracing::info!(server = %self.name, tools = live.tools.len(), "an MCP server is up");
                        self.state.send_replace(ServerState::Up(Arc::new(live)));
                    }
                    Ok(Err(_)) | Err(_) => return "it did not list its tools",
                }
                handler.look.notified().await;
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
        // A connection that does not close in time is dropped, which kills its program.
        let _ = tokio::time::timeout(END, ended).await;
        why.to_owned()
    }

    /// The server with those of its tools that agents may call.
    fn offering(
        &self,
        peer: &Peer<RoleClient>,
        listed: Vec<LibraryPage>,
        handler: &Handler,
    ) -> Live {
        let Handler { look, needs } = handler.clone();
        let mut live =
            Live { peer: peer.clone(), tools: Vec::new(), not_offered: Vec::new(), look, needs };
        let mut tools = catalogue::allowed(&self.name, &self.settings, &listed);
        tools.retain(|tool| match live.needs.of(&tool.tool) {
            None => true,
            Some(need) => {
                live.not_offered.push((tool.tool.clone(), need));
                false
            }
        });
        if self.settings.resources && live.has_resources() {
            tools.extend(catalogue::for_resources(&self.name, &tools));
        }
        live.tools = tools.into_iter().map(Arc::new).collect();
        live
    }
}

/// All its tools, page by page, up to `MOST_PAGES`.
async fn list(peer: &Peer<RoleClient>) -> Result<Vec<LibraryPage>, ServiceError> {
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..MOST_PAGES {
        let asked = PaginatedRequestParams::default().with_cursor(cursor);
        let page = match peer.list_tools(Some(asked)).await {
            // It has only prompts or resources.
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                break;
            }
            page => page?,
        };
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(tools)
}

/// The back-off after that many failures: between half of a bound that doubles and the whole, at
/// random, so that many servers do not restart at the same moment.
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
