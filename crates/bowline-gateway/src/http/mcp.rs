//! `/mcp`: the gateway as an MCP server (SBP-L5-06), so that any MCP host can talk to its sessions
//! and use the tools of attached devices. Also `/v1/mcp/servers`: the MCP servers that the gateway
//! itself uses, their health, prompts and resources.
//!
//! Streamable HTTP without MCP sessions: every request is authenticated and answered by itself, so
//! there is no MCP session state to keep, expire or hijack.

mod devices;
mod host;
pub(crate) mod library;
mod malformed;
mod resources;
mod sessions;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use bowline_sbp::access::Action;
use bowline_store::Session;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use self::host::Host;
use super::caller::token_as_session;
use super::error::ApiError;
use super::{App, body};
use crate::auth::{Credentials, Denied, TOKEN_PREFIX};
use crate::engine::{Deed, Engine, Identity};
use crate::mcp::Health;

/// What a caller may access: with a key (or at an open gateway) what is its user's, with a session's
/// token that session.
#[derive(Debug, Clone)]
enum Reach {
    User(Identity),
    One(Box<Session>),
}

impl Reach {
    async fn of(engine: &Engine, credentials: Credentials) -> Result<Self, ApiError> {
        let as_bearer = credentials.session_token.is_none();
        let credentials = token_as_session(engine, credentials);
        let Some(token) = &credentials.session_token else {
            return Ok(Reach::User(engine.allow(&credentials, Action::SpeakMcp).await?));
        };
        match engine.session_by_token(token).await? {
            Some(session) => {
                engine.count_request(&credentials, &Identity::of_session(&session)).await?;
                Ok(Reach::One(Box::new(session)))
            }
            // What looked like a token may be the key of another service, which some accept.
            None if as_bearer && !token.starts_with(TOKEN_PREFIX) => {
                let bearer = credentials.session_token.clone();
                let credentials = Credentials { bearer, session_token: None, ..credentials };
                Ok(Reach::User(engine.allow(&credentials, Action::SpeakMcp).await?))
            }
            None => Err(Denied::Wrong.into()),
        }
    }

    fn identity(&self) -> Identity {
        match self {
            Reach::User(identity) => identity.clone(),
            Reach::One(session) => Identity::of_session(session),
        }
    }

    /// Whether the caller may do that at the gateway. The error is a text for the host.
    fn check(&self, action: Action) -> Result<(), String> {
        self.identity().check(action).map_err(|denied| ApiError::from(denied).message().to_owned())
    }
}

/// The `/mcp` route, with its own authentication.
pub(crate) fn routes(app: &Arc<App>) -> Router<Arc<App>> {
    let host = Host::new(Arc::clone(app));
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        // `http::guard` has checked both already.
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(app.engine.limits.request_body);
    let sessions = Arc::new(NeverSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(host.clone()), sessions, config);
    Router::new()
        .route_service("/mcp", service)
        .route_layer(middleware::from_fn_with_state(Arc::clone(app), admit))
}

/// Authenticates the request, and reads its body within the usual limits (G11).
async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let admitted = async {
        let reach =
            Reach::of(&app.engine, body::credentials(request.headers(), request.extensions()))
                .await?;
        let (mut parts, body) = request.into_parts();
        let limits = &app.engine.limits;
        let name = "limits.request_body";
        let bytes = body::read_within(body, limits.request_body, name, limits).await?;
        parts.extensions.insert(reach);
        Ok::<_, ApiError>((parts, bytes))
    };
    match admitted.await {
        Ok((parts, bytes)) => {
            if parts.method == Method::POST
                && let Err(malformed) = malformed::check(&bytes)
            {
                return malformed.into_response();
            }
            next.run(Request::from_parts(parts, Body::from(bytes))).await
        }
        Err(error) => error.into_response(),
    }
}

/// The health of the MCP servers whose tools agents use. Starts those that have not been started.
#[utoipa::path(
    get, path = "/v1/mcp/servers", tag = "mcp",
    responses((status = 200, body = Health), (status = 401, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn servers(
    State(app): State<Arc<App>>,
    credentials: Credentials,
) -> Result<Json<Health>, ApiError> {
    app.engine.allow(&credentials, Action::UseServers).await?;
    Ok(Json(app.engine.mcp.health().await))
}

/// The definitions of a server's tools that were accepted.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub(crate) struct AcceptedTools {
    server: String,
    tools: Vec<String>,
}

/// Accept what a server says of its tools now. Until then, a tool whose definition has changed asks each
/// time.
#[utoipa::path(
    post, path = "/v1/mcp/servers/{server}/accept", tag = "mcp",
    responses(
        (status = 200, body = AcceptedTools),
        (status = 404, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn accept(
    State(app): State<Arc<App>>,
    Path(server): Path<String>,
    credentials: Credentials,
) -> Result<Json<AcceptedTools>, ApiError> {
    let by = app.engine.allow(&credentials, Action::Operate).await?;
    let tools = app.engine.mcp.tools_of(&server).await?;
    app.engine.pins.accept(&*app.engine.store, &tools).await?;
    app.engine.audit.change(&by, Deed::AcceptTool, &server).await?;
    let tools = tools.iter().map(|tool| tool.name().to_owned()).collect();
    Ok(Json(AcceptedTools { server, tools }))
}
