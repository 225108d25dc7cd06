//! Connects to an MCP server, by child process or HTTP.

use std::sync::Arc;
use std::time::Duration;

use bowline_net::outbound;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{
    ClientInitializeError, NotificationContext, RunningService, serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, RoleClient};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::child::Child;
use crate::config::mcp::McpTransport;

/// The largest message of a server, in bytes. Larger ones are skipped, and the call that waits for
/// one ends by its timeout.
const LARGEST_MESSAGE: usize = 8 << 20;
const CONNECT: Duration = Duration::from_secs(5);

/// The client's handler: it offers no capabilities, and is notified when the tool list changes.
#[derive(Debug)]
pub(super) struct ToolListHandler(Arc<Notify>);

impl ClientHandler for ToolListHandler {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("bowline", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.0.notify_one();
    }
}

/// An established connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) service: RunningService<RoleClient, ToolListHandler>,
    child: Option<Child>,
}

impl Connection {
    /// Waits until the server disconnects, or `stop` of [`dial`]; then cleans up. Returns why it
    /// ended.
    pub(super) async fn ended(self) -> String {
        let _ = self.service.waiting().await;
        let status = match self.child {
            Some(child) => child.end().await,
            None => None,
        };
        status.unwrap_or_else(|| "the connection was closed".into())
    }
}

/// A failed connection: why, and whether another handshake may succeed.
struct DialError {
    why: String,
    greeting: bool,
}

impl DialError {
    fn plainly(why: impl Into<String>) -> Self {
        Self { why: why.into(), greeting: false }
    }
}

/// Connects: first with the `initialize` handshake, which nearly every server knows, then with the
/// protocol revision that has no handshake. Ends with `stop`, which also ends a program that was
/// started.
pub(super) async fn dial(
    server: &str,
    place: &McpTransport,
    look: &Arc<Notify>,
    stop: &CancellationToken,
) -> Result<Connection, String> {
    let without =
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    match greet(server, place, look, ClientLifecycleMode::Initialize, stop).await {
        Err(DialError { why, greeting: true }) => {
            greet(server, place, look, without, stop).await.map_err(|_| why)
        }
        first => first.map_err(|refused| refused.why),
    }
}

async fn greet(
    server: &str,
    place: &McpTransport,
    look: &Arc<Notify>,
    mode: ClientLifecycleMode,
    stop: &CancellationToken,
) -> Result<Connection, DialError> {
    let handler = ToolListHandler(Arc::clone(look));
    match place {
        McpTransport::Program { command, args, env } => {
            let started = Child::start(server, command, args, env);
            let (child, stdout, stdin) = started.map_err(DialError::plainly)?;
            let pipes = AsyncRwTransport::new(stdout, stdin).with_max_line_length(LARGEST_MESSAGE);
            match serve_client_with_lifecycle_and_ct(handler, pipes, mode, stop.clone()).await {
                Ok(service) => Ok(Connection { service, child: Some(child) }),
                Err(error) => {
                    let greeting = matches!(error, ClientInitializeError::JsonRpcError(_));
                    let silent = || "its program does not speak MCP".to_owned();
                    Err(DialError { why: child.end().await.unwrap_or_else(silent), greeting })
                }
            }
        }
        McpTransport::Address { url, headers } => {
            let client = outbound::client(url).connect_timeout(CONNECT).build();
            let client = client.map_err(|_| DialError::plainly("no HTTP client can be made"))?;
            let headers = headers.iter().map(|(name, value)| (name.clone(), value.clone()));
            let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                .custom_headers(headers.collect())
                .max_sse_event_size(LARGEST_MESSAGE);
            let transport = StreamableHttpClientTransport::with_client(client, config);
            // The error may quote the address, and that may carry credentials.
            let served = serve_client_with_lifecycle_and_ct(handler, transport, mode, stop.clone());
            let service =
                served.await.map_err(|error| match error.is_authorization_required() {
                    true => DialError::plainly("it refused the credentials; check `headers`"),
                    // Servers refuse an unknown handshake in different ways, so any other error
                    // counts as that.
                    false => DialError {
                        why: "it does not answer as an MCP server".into(),
                        greeting: true,
                    },
                })?;
            Ok(Connection { service, child: None })
        }
    }
}
