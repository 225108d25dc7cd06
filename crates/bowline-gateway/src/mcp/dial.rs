//! Connects to an MCP server, by child process or HTTP.

use std::time::Duration;

use bowline_net::outbound;
use reqwest::Url;
use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, RunningService, serve_client_with_lifecycle_and_ct};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientLifecycleMode, RoleClient};
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;

use super::child::Child;
use super::handler::Handler;
use super::tasks::TaskTools;
use crate::config::mcp::McpTransport;

/// The largest message of a server, in bytes. Larger ones are skipped, and the call that waits for
/// one ends by its timeout.
const LARGEST_MESSAGE: usize = 8 << 20;
const CONNECT: Duration = Duration::from_secs(5);

/// An established connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) service: RunningService<RoleClient, Handler>,
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
    handler: &Handler,
    stop: &CancellationToken,
) -> Result<Connection, String> {
    let without =
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    match greet(server, place, handler, ClientLifecycleMode::Initialize, stop).await {
        Err(DialError { why, greeting: true }) => {
            greet(server, place, handler, without, stop).await.map_err(|_| why)
        }
        first => first.map_err(|refused| refused.why),
    }
}

async fn greet(
    server: &str,
    place: &McpTransport,
    handler: &Handler,
    mode: ClientLifecycleMode,
    stop: &CancellationToken,
) -> Result<Connection, DialError> {
    let handler = handler.clone();
    match place {
        McpTransport::Program { command, args, env } => {
            let started = Child::start(server, command, args, env);
            let (child, stdout, stdin) = started.map_err(DialError::plainly)?;
            let mut tasks = TaskTools::new(&handler.needs, LARGEST_MESSAGE);
            let stdout = InspectReader::new(stdout, move |bytes: &[u8]| tasks.read(bytes));
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
            let transport = StreamableHttpClientTransport::with_client(client.clone(), config);
            // The error may quote the address, and that may carry credentials.
            let served = serve_client_with_lifecycle_and_ct(handler, transport, mode, stop.clone());
            match served.await {
                Ok(service) => Ok(Connection { service, child: None }),
                Err(error) if error.is_authorization_required() => {
                    Err(DialError::plainly("it refused the credentials; check `headers`"))
                }
                Err(_) if is_closed(&client, url).await => {
                    Err(DialError::plainly("nothing listens at its address; is it running?"))
                }
                // Servers refuse an unknown handshake in different ways, so any other error counts
                // as that.
                Err(_) => {
                    let why = "it does not answer as an MCP server".into();
                    Err(DialError { why, greeting: true })
                }
            }
        }
    }
}

/// Whether nothing listens there. The transport's error does not say.
async fn is_closed(client: &reqwest::Client, url: &Url) -> bool {
    let asked = client.head(url.clone()).timeout(CONNECT).send().await;
    asked.is_err_and(|error| outbound::is_closed_port(&error))
}
