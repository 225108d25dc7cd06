//! Prompts and resources of MCP servers: for people over HTTP, and resources for models where the
//! configuration offers them.
//!
//! Lists are passed on page by page, as the server cuts them.

use bowline_sbp::error::{Code, Failure};
use rmcp::model::{
    ErrorCode, GetPromptRequestParams, GetPromptResponse, GetPromptResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
};
use rmcp::service::ServiceError;
use rmcp::{Peer, RoleClient};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::catalogue::ToolAction;
use super::needs::Need;
use super::server::{Live, McpServer};
use super::{Servers, answer};

/// One page of a list of a server. The items are as in MCP.
#[derive(Debug, Serialize, ToSchema)]
pub struct LibraryPage {
    #[schema(value_type = Vec<Object>)]
    pub items: Vec<Value>,
    /// The `cursor` of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What a server can list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Prompts,
    Resources,
    Templates,
}

impl Servers {
    /// One page of a server's prompts, resources or templates.
    pub(crate) async fn list(
        &self,
        server: &str,
        list: List,
        cursor: Option<String>,
    ) -> Result<LibraryPage, Failure> {
        let server = self.find(server).await?;
        server.patiently(async |peer| page(peer, list, cursor).await).await
    }

    /// A prompt with these arguments.
    pub(crate) async fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<GetPromptResult, Failure> {
        let server = self.find(server).await?;
        let asked = GetPromptRequestParams::new(name).with_arguments(arguments);
        match server.patiently(async |peer| peer.get_prompt_once(asked).await).await? {
            GetPromptResponse::Complete(result) => Ok(result),
            GetPromptResponse::InputRequired(asked) => Err(needs("prompt", Need::of_input(&asked))),
            _ => Err(needs("prompt", Need::Input)),
        }
    }

    /// The contents of a resource.
    pub(crate) async fn resource(
        &self,
        server: &str,
        uri: &str,
    ) -> Result<ReadResourceResult, Failure> {
        let server = self.find(server).await?;
        let asked = ReadResourceRequestParams::new(uri);
        match server.patiently(async |peer| peer.read_resource_once(asked).await).await? {
            ReadResourceResponse::Complete(result) => Ok(result),
            ReadResourceResponse::InputRequired(asked) => {
                Err(needs("resource", Need::of_input(&asked)))
            }
            _ => Err(needs("resource", Need::Input)),
        }
    }
}

fn needs(what: &str, need: Need) -> Failure {
    Failure::new(Code::InvalidRequest, format!("the {what} cannot be used here: {need}"))
}

impl McpServer {
    /// Asks the server within its timeout. For requests that are no tool calls.
    async fn patiently<T>(
        &self,
        ask: impl AsyncFnOnce(&Peer<RoleClient>) -> Result<T, ServiceError>,
    ) -> Result<T, Failure> {
        let asked = async {
            let gone = |_| Failure::new(Code::Unavailable, "the gateway stops");
            let _place = self.calls.acquire().await.map_err(gone)?;
            let live = self.live().map_err(|why| Failure::new(Code::Unavailable, why))?;
            ask(&live.peer).await.map_err(|error| self.refused(&live, error))
        };
        let patience = self.settings.timeout;
        tokio::time::timeout(patience, asked).await.unwrap_or_else(|_| {
            let (name, seconds) = (&self.name, patience.as_secs());
            let why = format!("the MCP server `{name}` did not answer within {seconds} s");
            Err(Failure::new(Code::UpstreamTimeout, why))
        })
    }

    fn refused(&self, live: &Live, error: ServiceError) -> Failure {
        let name = &self.name;
        match error {
            ServiceError::McpError(error) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                Failure::new(Code::NotFound, format!("the MCP server `{name}` has none of these"))
            }
            ServiceError::McpError(error) => {
                let said = bowline_sbp::surface::description(&error.message);
                let why = format!("the MCP server `{name}` refused: {said}");
                Failure::new(Code::InvalidRequest, why)
            }
            _ => Failure::new(Code::Upstream, self.gone(live)),
        }
    }

    /// The tools for a server's resources. The error is a text for the model.
    pub(super) async fn resource_tool(
        &self,
        live: &Live,
        work: ToolAction,
        arguments: &Map<String, Value>,
    ) -> Result<Value, String> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).map(str::to_owned);
        let said = |error: ServiceError| self.refused(live, error).message;
        if work == ToolAction::ListResources {
            let cursor = text("cursor");
            let first = cursor.is_none();
            let listed = page(&live.peer, List::Resources, cursor).await.map_err(said)?;
            let mut found = json!({ "resources": listed.items, "next_cursor": listed.next });
            // Many servers have no templates, and refuse to list them.
            if first && let Ok(templates) = page(&live.peer, List::Templates, None).await {
                found["templates"] = templates.items.into();
            }
            return answer::sized(found);
        }
        let uri = text("uri").ok_or("`uri` is missing; list the resources to find one")?;
        let asked = ReadResourceRequestParams::new(uri);
        match live.peer.read_resource_once(asked).await.map_err(said)? {
            ReadResourceResponse::Complete(result) => answer::resource(result.contents),
            ReadResourceResponse::InputRequired(asked) => {
                Err(needs("resource", Need::of_input(&asked)).message)
            }
            _ => Err(needs("resource", Need::Input).message),
        }
    }
}

async fn page(
    peer: &Peer<RoleClient>,
    list: List,
    cursor: Option<String>,
) -> Result<LibraryPage, ServiceError> {
    let asked = Some(PaginatedRequestParams::default().with_cursor(cursor));
    let (items, next) = match list {
        List::Prompts => {
            let page = peer.list_prompts(asked).await?;
            (values(page.prompts), page.next_cursor)
        }
        List::Resources => {
            let page = peer.list_resources(asked).await?;
            (values(page.resources), page.next_cursor)
        }
        List::Templates => {
            let page = peer.list_resource_templates(asked).await?;
            (values(page.resource_templates), page.next_cursor)
        }
    };
    Ok(LibraryPage { items, next })
}

fn values(items: Vec<impl Serialize>) -> Vec<Value> {
    items.into_iter().filter_map(|item| serde_json::to_value(item).ok()).collect()
}
