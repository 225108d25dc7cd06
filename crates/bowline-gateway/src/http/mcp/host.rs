//! The MCP server's tools: three to talk to sessions, and those of attached devices.

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::{Reach, devices, sessions};
use crate::http::App;

/// Tools on one page of a list.
const PAGE: usize = 200;

const INSTRUCTIONS: &str = "Bowline keeps conversations with AI agents alive. sessions_list shows \
    them, session_send sends a message and returns the agent's answer, session_read shows what \
    was said. The other tools run on devices that are attached right now.";

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
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("bowline", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        asked: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let reach = reach(&context)?;
        let devices = devices::tools(&self.app.sessions, reach);
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
                let tools = devices::tools(&self.app.sessions, reach);
                let tool = tools.into_iter().find(|tool| tool.name == *call.name);
                let unknown = || ErrorData::invalid_params("there is no such tool here now", None);
                tool.ok_or_else(unknown)?.call(&self.app, arguments, gone).await
            }
        };
        // A failure is a tool result, not a protocol error, so that the model can read it.
        let failed = |why| CallToolResult::error(vec![ContentBlock::text(why)]);
        Ok(answer.unwrap_or_else(failed).into())
    }
}

/// The access that `admit` stored in the request's extensions.
fn reach(context: &RequestContext<RoleServer>) -> Result<&Reach, ErrorData> {
    let noted = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get());
    noted.ok_or_else(|| ErrorData::internal_error("internal error", None))
}
