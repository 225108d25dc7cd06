//! Making a connection to an MCP server, whatever way it is reached.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ClientCapabilities, ClientConfig, Implementation};
use rmcp::service::{NotificationContext, RunningService, serve_client_with_ct};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::child::Child;
use super::config::Place;

/// The largest message of a server, in bytes. Larger ones are passed over, and the call that waits
/// for one ends by its deadline.
const LARGEST_MESSAGE: usize = 8 << 20;
const CONNECT: Duration = Duration::from_secs(5);

/// Our side of a connection: asks for nothing, offers nothing, and hears when the tools change.
#[derive(Debug)]
pub(super) struct Ear(pub(super) Arc<Notify>);

impl ClientHandler for Ear {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("bowline", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.0.notify_one();
    }
}

/// A connection that is up.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) service: RunningService<RoleClient, Ear>,
    child: Option<Child>,
}

impl Connection {
    /// Waits until the other side goes, or `stop` of [`dial`]; then tidies up. Says why it ended.
    pub(super) async fn ended(self) -> String {
        let _ = self.service.waiting().await;
        let status = match self.child {
            Some(child) => child.end().await,
            None => None,
        };
        status.unwrap_or_else(|| "the connection was closed".into())
    }
}

/// Connects and greets. Ends with `stop`; what was started until then is ended, too.
pub(super) async fn dial(
    server: &str,
    place: &Place,
    ear: Ear,
    stop: CancellationToken,
) -> Result<Connection, String> {
    match place {
        Place::Program { command, args, env } => {
            let (child, stdout, stdin) = Child::start(server, command, args, env)?;
            let pipes = AsyncRwTransport::new(stdout, stdin).with_max_line_length(LARGEST_MESSAGE);
            match serve_client_with_ct(ear, pipes, stop).await {
                Ok(service) => Ok(Connection { service, child: Some(child) }),
                Err(_) => {
                    let silent = || "its program does not speak MCP".to_owned();
                    Err(child.end().await.unwrap_or_else(silent))
                }
            }
        }
        Place::Address { url, headers } => {
            let client = reqwest::Client::builder()
                .connect_timeout(CONNECT)
                // Headers with secrets go to the address they were meant for, and nowhere else.
                .redirect(reqwest::redirect::Policy::none())
                .build()
                .map_err(|_| "no HTTP client can be made".to_owned())?;
            let headers = headers.iter().map(|(name, value)| (name.clone(), value.clone()));
            let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                .custom_headers(headers.collect())
                .max_sse_event_size(LARGEST_MESSAGE);
            let transport = StreamableHttpClientTransport::with_client(client, config);
            // The error may quote the address, and that may carry credentials.
            let service = serve_client_with_ct(ear, transport, stop).await.map_err(|error| {
                match error.is_authorization_required() {
                    true => "it wants other credentials; check `headers`".to_owned(),
                    false => "it does not answer as an MCP server".to_owned(),
                }
            })?;
            Ok(Connection { service, child: None })
        }
    }
}
