//! The MCP server: three tools to talk to sessions, those of attached devices, and the sessions as
//! resources.

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest,
    CustomResult, ErrorCode, Implementation, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::{Reach, devices, resources, sessions};
use crate::http::App;

/// Tools on one page of a list.
const PAGE: usize = 200;

const INSTRUCTIONS: &str = "Bowline keeps conversations with AI agents alive. sessions_list shows \
    them, session_send sends a message and returns the agent's answer, session_read shows what \
    was said. The other tools run on devices that are attached right now. Sessions are also \
    resources: bowline://sessions/{session_id}.";

/// The gateway as an MCP server.
#[derive(Clone)]
pub(super) struct Host {
    app: Arc<App>,
}

impl Host {
    pub(super) fn new(app: Arc<App>) -> Self {
        Self { app }
    }
}

impl ServerHandler for Host {
    fn get_info(&self) -> ServerConfig {
        let offered = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(offered)
            .with_server_info(Implementation::new("bowline", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        asked: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let reach = reach(&context)?;
        let devices = devices::tools(&self.app.sessions, reach).await;
        let mut tools = sessions::tools(reach);
        tools.extend(devices.iter().map(devices::DeviceTool::listed));
        // Devices may attach or detach between two pages, so the cursor is a tool name, not an
        // index.
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(after) = asked.and_then(|asked| asked.cursor) {
            tools.retain(|tool| *tool.name > *after);
        }
        let more = tools.len() > PAGE;
        tools.truncate(PAGE);
        let mut result = ListToolsResult::with_all_items(tools);
        result.next_cursor = result.tools.last().filter(|_| more).map(|tool| tool.name.to_string());
        Ok(result)
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let reach = reach(&context)?;
        let arguments = call.arguments.unwrap_or_default();
        let gone = context.ct.cancelled();
        let answer = match sessions::SessionTool::read(&call.name, &arguments) {
            Some(deed) => match deed {
                Ok(deed) => deed.done(&self.app, reach, gone).await,
                Err(why) => Err(why),
            },
            None => {
                let tools = devices::tools(&self.app.sessions, reach).await;
                let tool = tools.into_iter().find(|tool| tool.name == *call.name);
                let unknown = || ErrorData::invalid_params("there is no such tool here now", None);
                let identity = reach.identity();
                tool.ok_or_else(unknown)?.call(&self.app, &identity, arguments, gone).await
            }
        };
        // A failure is a tool result, not a protocol error, so that the model can read it.
        let failed = |why| CallToolResult::error(vec![ContentBlock::text(why)]);
        Ok(answer.unwrap_or_else(failed).into())
    }

    /// The SDK hands over what it cannot read: an unknown method, or wrong parameters of a known one.
    async fn on_custom_request(
        &self,
        asked: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = asked.method;
        Err(match METHODS.contains(&method.as_str()) {
            true => {
                ErrorData::invalid_params(format!("the parameters of {method} are wrong"), None)
            }
            false => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None),
        })
    }

    async fn list_resources(
        &self,
        asked: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = asked.and_then(|asked| asked.cursor);
        resources::list(&self.app, reach(&context)?, cursor).await
    }

    async fn list_resource_templates(
        &self,
        _asked: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        asked: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(resources::read(&self.app, reach(&context)?, &asked.uri).await?.into())
    }
}

/// The methods that this server has.
const METHODS: [&str; 6] = [
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "initialize",
];

/// The access that `admit` stored in the request's extensions.
fn reach(context: &RequestContext<RoleServer>) -> Result<&Reach, ErrorData> {
    let noted = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get());
    noted.ok_or_else(|| ErrorData::internal_error("internal error", None))
}
