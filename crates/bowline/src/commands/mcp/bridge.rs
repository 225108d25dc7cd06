//! An MCP server on stdin and stdout that forwards every request to the gateway's `/mcp`.
//!
//! Has no tools of its own: the host gets the gateway's tools. After a restart of the gateway the
//! next request reconnects; only the request that found the connection broken fails, with an error.

use std::sync::Arc;
use std::time::Duration;

use bowline_net::outbound;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
    ContentBlock, Implementation, ListToolsResult, PaginatedRequestParams, ResultType,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{
    ClientCacheConfig, ErrorData, RoleClient, RoleServer, ServerHandler, ServiceExt, serve_server,
};
use tokio::sync::Mutex;
use url::Url;

/// The timeout for connecting to the gateway.
const CONNECT: Duration = Duration::from_secs(10);

type Connection = Arc<RunningService<RoleClient, ClientConfig>>;

pub(super) struct Bridge {
    url: Url,
    bearer: Option<String>,
    http: reqwest::Client,
    connection: Mutex<Option<Connection>>,
}

impl Bridge {
    pub(super) fn new(url: Url, bearer: Option<String>) -> Result<Self, reqwest::Error> {
        let http = outbound::client(&url).connect_timeout(CONNECT);
        Ok(Self { url, bearer, http: http.build()?, connection: Mutex::default() })
    }

    /// Serves until the host closes stdin.
    pub(super) async fn run(self) -> Result<(), String> {
        // A host that disconnects before `initialize` is not an error.
        let Ok(running) = serve_server(self, rmcp::transport::stdio()).await else { return Ok(()) };
        running.waiting().await.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn connected(&self) -> Result<Connection, String> {
        let mut connection = self.connection.lock().await;
        if let Some(up) = &*connection {
            return Ok(Arc::clone(up));
        }
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str());
        if let Some(bearer) = &self.bearer {
            config = config.auth_header(bearer);
        }
        let transport = StreamableHttpClientTransport::with_client(self.http.clone(), config);
        let us = Implementation::new("bowline mcp serve", env!("CARGO_PKG_VERSION"));
        let client = ClientConfig::new(ClientCapabilities::default(), us).serve(transport);
        let up = match tokio::time::timeout(CONNECT, client).await {
            Ok(Ok(up)) => Arc::new(up),
            Ok(Err(error)) if error.is_authorization_required() => {
                return Err("the gateway requires an API key: set BOWLINE_API_KEY".into());
            }
            _ => return Err(self.away()),
        };
        up.set_response_cache_config(ClientCacheConfig::disabled()).await;
        *connection = Some(Arc::clone(&up));
        Ok(up)
    }

    fn away(&self) -> String {
        format!("the gateway at {} does not answer; is it running?", self.url)
    }

    /// The error text for the host. Drops a broken connection, so that the next request reconnects.
    async fn lost(&self, error: ServiceError) -> Result<String, ErrorData> {
        match error {
            ServiceError::McpError(error) => Err(error),
            _ => {
                self.connection.lock().await.take();
                Ok(self.away())
            }
        }
    }
}

impl ServerHandler for Bridge {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("bowline", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        asked: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let away = |why: String| ErrorData::internal_error(why, None);
        let gateway = self.connected().await.map_err(away)?;
        let asked = asked.map(|asked| PaginatedRequestParams::default().with_cursor(asked.cursor));
        match gateway.list_tools(asked).await {
            // A new result, not theirs: its version-dependent fields must match the host's protocol
            // version, not the gateway's.
            Ok(theirs) => {
                let mut listed = ListToolsResult::with_all_items(theirs.tools);
                listed.next_cursor = theirs.next_cursor;
                Ok(listed)
            }
            Err(error) => Err(away(self.lost(error).await?)),
        }
    }

    async fn call_tool(
        &self,
        mut call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let failed = |why: String| CallToolResult::error(vec![ContentBlock::text(why)]);
        let gateway = match self.connected().await {
            Ok(gateway) => gateway,
            Err(why) => return Ok(failed(why).into()),
        };
        call.meta = None;
        let answer = tokio::select! {
            answer = gateway.call_tool_once(call) => answer,
            () = context.ct.cancelled() => {
                return Ok(failed("the tool call was cancelled".into()).into());
            }
        };
        match answer {
            Ok(CallToolResponse::Complete(mut result)) => {
                // As in `list_tools`: this field depends on the host's protocol version.
                result.result_type = Some(ResultType::COMPLETE);
                Ok(result.into())
            }
            Ok(answer) => Ok(answer),
            Err(error) => Ok(failed(self.lost(error).await?).into()),
        }
    }
}
