//! How the MCP servers are that the gateway uses.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;

use super::error::ApiError;
use super::{App, body};
use crate::mcp::Health;

/// How the MCP servers are whose tools agents use. Starts those that have not been started.
#[utoipa::path(
    get, path = "/v1/mcp/servers", tag = "operations",
    responses((status = 200, body = Health), (status = 401, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn servers(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> Result<Json<Health>, ApiError> {
    app.engine.access.may_use(&body::credentials(&headers))?;
    Ok(Json(app.engine.mcp.health().await))
}
