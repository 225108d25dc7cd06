//! `/v1/mcp/servers/{server}/…`: the prompts and resources of the MCP servers that the gateway uses.
//! Prompts, resources and their contents have the form that MCP gives them.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use bowline_sbp::access::Action;
use bowline_sbp::error::Code;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use crate::auth::Credentials;
use crate::http::sessions::bad_query;
use crate::http::{ApiError, App, body};
use crate::mcp::{LibraryPage, List};

type Api<T> = Result<Json<T>, ApiError>;

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct PageQuery {
    /// `next` of the page before.
    cursor: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct ReadQuery {
    /// The resource's URI.
    uri: Option<String>,
}

/// The arguments of a prompt.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PromptRequest {
    #[schema(value_type = Object)]
    arguments: Map<String, Value>,
}

/// A prompt, filled in.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromptView {
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// The messages, as in MCP: `role` and `content`.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Value>,
}

/// The contents of a resource.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResourceView {
    /// As in MCP: `uri`, `mimeType`, and `text` or `blob` (base64).
    #[schema(value_type = Vec<Object>)]
    contents: Vec<Value>,
}

/// List the prompts of an MCP server.
#[utoipa::path(
    get, path = "/v1/mcp/servers/{server}/prompts", tag = "mcp",
    params(("server" = String, Path), PageQuery),
    responses((status = 200, body = LibraryPage), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn prompts(
    app: State<Arc<App>>,
    server: Path<String>,
    query: Result<Query<PageQuery>, QueryRejection>,
    credentials: Credentials,
) -> Api<LibraryPage> {
    list(app, server, query, credentials, List::Prompts).await
}

/// List the resources of an MCP server.
#[utoipa::path(
    get, path = "/v1/mcp/servers/{server}/resources", tag = "mcp",
    params(("server" = String, Path), PageQuery),
    responses((status = 200, body = LibraryPage), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn resources(
    app: State<Arc<App>>,
    server: Path<String>,
    query: Result<Query<PageQuery>, QueryRejection>,
    credentials: Credentials,
) -> Api<LibraryPage> {
    list(app, server, query, credentials, List::Resources).await
}

/// List the resource templates of an MCP server.
#[utoipa::path(
    get, path = "/v1/mcp/servers/{server}/resources/templates", tag = "mcp",
    params(("server" = String, Path), PageQuery),
    responses((status = 200, body = LibraryPage), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn templates(
    app: State<Arc<App>>,
    server: Path<String>,
    query: Result<Query<PageQuery>, QueryRejection>,
    credentials: Credentials,
) -> Api<LibraryPage> {
    list(app, server, query, credentials, List::Templates).await
}

async fn list(
    State(app): State<Arc<App>>,
    Path(server): Path<String>,
    query: Result<Query<PageQuery>, QueryRejection>,
    credentials: Credentials,
    list: List,
) -> Api<LibraryPage> {
    app.engine.allow(&credentials, Action::UseServers).await?;
    let Query(query) = query.map_err(bad_query)?;
    Ok(Json(app.engine.mcp.list(&server, list, query.cursor).await?))
}

/// Fill in a prompt of an MCP server.
#[utoipa::path(
    post, path = "/v1/mcp/servers/{server}/prompts/{prompt}", tag = "mcp",
    params(("server" = String, Path), ("prompt" = String, Path)), request_body = PromptRequest,
    responses((status = 200, body = PromptView), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn prompt(
    State(app): State<Arc<App>>,
    Path((server, prompt)): Path<(String, String)>,
    credentials: Credentials,
    body: Body,
) -> Api<PromptView> {
    app.engine.allow(&credentials, Action::UseServers).await?;
    let bytes = body::read(body, &app.engine.limits).await?;
    let PromptRequest { arguments } = body::json(&bytes)?;
    let found = app.engine.mcp.prompt(&server, &prompt, arguments).await?;
    let messages = found.messages.into_iter().filter_map(|said| serde_json::to_value(said).ok());
    Ok(Json(PromptView { description: found.description, messages: messages.collect() }))
}

/// Read a resource of an MCP server.
#[utoipa::path(
    get, path = "/v1/mcp/servers/{server}/resources/read", tag = "mcp",
    params(("server" = String, Path), ReadQuery),
    responses((status = 200, body = ResourceView), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn resource(
    State(app): State<Arc<App>>,
    Path(server): Path<String>,
    query: Result<Query<ReadQuery>, QueryRejection>,
    credentials: Credentials,
) -> Api<ResourceView> {
    app.engine.allow(&credentials, Action::UseServers).await?;
    let Query(query) = query.map_err(bad_query)?;
    let missing = || ApiError::new(Code::InvalidRequest, "`uri` is missing").param("uri");
    let uri = query.uri.ok_or_else(missing)?;
    let found = app.engine.mcp.resource(&server, &uri).await?;
    let contents = found.contents.into_iter().filter_map(|part| serde_json::to_value(part).ok());
    Ok(Json(ResourceView { contents: contents.collect() }))
}
