//! An MCP server on stdin and stdout that forwards every request to the gateway's `/mcp`.
//!
//! Has nothing of its own: the host gets the gateway's instructions, tools and resources. After a
//! restart of the gateway the next request reconnects; only the request that found the connection
//! broken fails, with an error.

use std::sync::Arc;
use std::time::Duration;

use bowline_net::outbound;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
    ContentBlock, Implementation, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ResultType, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{
    ClientCacheConfig, ErrorData, RoleClient, RoleServer, ServerHandler, ServiceExt, serve_server,
};
use tokio::sync::Mutex;
use url::Url;

use crate::api::Api;

/// The timeout for connecting to the gateway.
const CONNECT: Duration = Duration::from_secs(10);

type Connection = Arc<RunningService<RoleClient, ClientConfig>>;

pub(super) struct Bridge {
    /// The gateway.
    url: Url,
    bearer: Option<String>,
    http: reqwest::Client,
    connection: Mutex<Option<Connection>>,
    /// What the gateway said of itself when this command started.
    info: ServerConfig,
}

impl Bridge {
    /// Connects to a gateway.
    pub(super) async fn open(api: &Api, bearer: Option<String>) -> Result<Self, String> {
        let url = api.url.clone();
        let http = match api.via() {
            Some(via) => outbound::client(&url).unix_socket(via.socket()),
            None => outbound::client(&url).connect_timeout(CONNECT),
        };
        let http = http.build().map_err(|error| error.to_string())?;
        let info = ServerConfig::new(ServerCapabilities::default());
        let mut bridge = Self { url, bearer, http, connection: Mutex::default(), info };
        let gateway = bridge.connected().await?;
        if let Some(theirs) = gateway.peer_info() {
            bridge.info = ServerConfig::new(theirs.capabilities.clone())
                .with_server_info(Implementation::new("bowline", env!("CARGO_PKG_VERSION")));
            bridge.info.instructions = theirs.instructions.clone();
        }
        Ok(bridge)
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
        let url = self.url.join("/mcp").map_err(|error| error.to_string())?;
        let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
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
            _ => return Err(self.away().await),
        };
        up.set_response_cache_config(ClientCacheConfig::disabled()).await;
        *connection = Some(Arc::clone(&up));
        Ok(up)
    }

    /// Why the gateway did not answer.
    async fn away(&self) -> String {
        let url = &self.url;
        let asked = self.http.get(url.clone()).timeout(CONNECT).send().await;
        match asked {
            Err(error) if outbound::is_closed_port(&error) => {
                format!("nothing listens at {url}; start the gateway with `bowline up`")
            }
            Ok(_) if self.is_refused().await => {
                format!(
                    "the gateway at {url} refuses the API key; set BOWLINE_API_KEY to one of its keys, \
                     or to a session's token"
                )
            }
            _ => format!("the gateway at {url} does not answer; check it with `bowline doctor`"),
        }
    }

    /// Whether the gateway answers and does not accept the key.
    async fn is_refused(&self) -> bool {
        let Ok(url) = self.url.join("/mcp") else { return false };
        let mut asked = self.http.post(url).timeout(CONNECT).body("{}");
        if let Some(bearer) = &self.bearer {
            asked = asked.bearer_auth(bearer);
        }
        asked.send().await.is_ok_and(|answer| matches!(answer.status().as_u16(), 401 | 403))
    }

    /// The error text for the host. Drops a broken connection, so that the next request reconnects.
    async fn lost(&self, error: ServiceError) -> Result<String, ErrorData> {
        match error {
            ServiceError::McpError(error) => Err(error),
            _ => {
                self.connection.lock().await.take();
                Ok(self.away().await)
            }
        }
    }

    /// Asks the gateway for something that is not a tool call.
    async fn ask<T>(
        &self,
        ask: impl AsyncFnOnce(&Connection) -> Result<T, ServiceError>,
    ) -> Result<T, ErrorData> {
        let away = |why: String| ErrorData::internal_error(why, None);
        let gateway = self.connected().await.map_err(away)?;
        match ask(&gateway).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(away(self.lost(error).await?)),
        }
    }
}

/// The host's cursor, without the metadata of its request.
fn page(asked: Option<PaginatedRequestParams>) -> Option<PaginatedRequestParams> {
    asked.map(|asked| PaginatedRequestParams::default().with_cursor(asked.cursor))
}

// Every list is a new result, not the gateway's: its version-dependent fields must match the host's
// protocol version.
impl ServerHandler for Bridge {
    fn get_info(&self) -> ServerConfig {
        self.info.clone()
    }

    async fn list_tools(
        &self,
        asked: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let theirs = self.ask(async |gateway| gateway.list_tools(page(asked)).await).await?;
        let mut listed = ListToolsResult::with_all_items(theirs.tools);
        listed.next_cursor = theirs.next_cursor;
        Ok(listed)
    }

    async fn list_resources(
        &self,
        asked: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let theirs = self.ask(async |gateway| gateway.list_resources(page(asked)).await).await?;
        let mut listed = ListResourcesResult::with_all_items(theirs.resources);
        listed.next_cursor = theirs.next_cursor;
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        asked: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let ask = async |gateway: &Connection| gateway.list_resource_templates(page(asked)).await;
        let theirs = self.ask(ask).await?;
        let mut listed = ListResourceTemplatesResult::with_all_items(theirs.resource_templates);
        listed.next_cursor = theirs.next_cursor;
        Ok(listed)
    }

    async fn read_resource(
        &self,
        asked: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let asked = ReadResourceRequestParams::new(asked.uri);
        match self.ask(async |gateway| gateway.read_resource_once(asked).await).await? {
            ReadResourceResponse::Complete(theirs) => {
                Ok(ReadResourceResult::new(theirs.contents).into())
            }
            other => Ok(other),
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
                // As with lists: this field depends on the host's protocol version.
                result.result_type = Some(ResultType::COMPLETE);
                Ok(result.into())
            }
            Ok(answer) => Ok(answer),
            Err(error) => Ok(failed(self.lost(error).await?).into()),
        }
    }
}
