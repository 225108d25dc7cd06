//! Export, import, handoff and fork over HTTP (SBP-L3).

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bowline_pyjson::Value;
use bowline_sbp::access::{Action, Scope};
use bowline_sbp::api::{
    ExportList, ExportRequest, Exported, ForkRequest, Forked, HandedOff, HandoffRequest, Imported,
    KeyRotated, Lineage, TokenView,
};
use bowline_sbp::bundle::{Contents, OpenError};
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::{AgentId, ExportId};
use bowline_sbp::roaming_token::LONGEST_TTL;
use bowline_store::IdempotencyKey;
use jiff::SignedDuration;
use sha2::{Digest, Sha256};

use super::error::ApiError;
use super::idempotency::{named_key, new_scope};
use super::sessions::Named;
use super::{App, body};
use crate::auth::Credentials;
use crate::engine::{Handoff, Source};

type Api<T> = Result<T, ApiError>;

const SHORTEST_TTL: u32 = 60;
const USUAL_TTL: u32 = 24 * 3600;
const LONGEST_LABEL: usize = 120;
const LONGEST_HANDOFF_MESSAGE: usize = 2000;
const LONGEST_REASON: usize = 500;

/// Pack a session into a bundle.
///
/// The bundle stays on this gateway; the roaming token opens it once.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/export", tag = "roaming", request_body = ExportRequest,
    responses(
        (status = 201, body = Exported),
        (status = 404, body = bowline_sbp::api::ErrorBody),
        (status = 422, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn export(
    State(app): State<Arc<App>>,
    Named(id): Named,
    credentials: Credentials,
    body: Body,
) -> Api<(StatusCode, Json<Exported>)> {
    let engine = &app.engine;
    let (_, identity) = engine.allow_in(&credentials, id, Action::TakeAway).await?;
    let asked: ExportRequest = body::json(&body::read(body, &engine.limits).await?)?;
    let ttl = asked.ttl_seconds.unwrap_or(USUAL_TTL);
    if !(SHORTEST_TTL..=LONGEST_TTL).contains(&ttl) {
        let message = format!("`ttl_seconds` must be {SHORTEST_TTL} to {LONGEST_TTL}");
        return Err(ApiError::new(Code::InvalidRequest, message).param("ttl_seconds"));
    }
    let label = text("label", asked.label, LONGEST_LABEL)?;
    let ttl = SignedDuration::from_secs(ttl.into());
    // The agent's memories of other sessions are the user's, not the session's.
    let memory = identity.is_of_user() && identity.has(Scope::Read);
    let exported = engine.export(id, ttl, label, memory).await?;
    Ok((StatusCode::CREATED, Json(exported)))
}

/// Create a session from a bundle.
///
/// With a `roaming_token` of this gateway, or with the `bundle` itself. Nothing is written unless
/// the token is valid and the bundle matches its content id.
#[utoipa::path(
    post, path = "/v1/sbp/sessions/import", tag = "roaming",
    request_body(content = Object, description = "`roaming_token` or `bundle`; `target_agent_id`; \
        `allow_reuse`: fork, and do not consume the token"),
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key and body gets the same session")),
    responses(
        (status = 201, body = Imported),
        (status = 410, description = "The token has expired or was used", body = bowline_sbp::api::ErrorBody),
        (status = 422, description = "The token or the bundle is invalid", body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn import(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    credentials: Credentials,
    body: Body,
) -> Api<(StatusCode, Json<Imported>)> {
    let engine = &app.engine;
    let identity = engine.allow(&credentials, Action::ImportSession).await?;
    let limits = &engine.limits;
    let bytes = body::read_within(body, limits.import_body, "limits.import_body", limits).await?;
    // Reading and hashing a long history would block the async runtime.
    let asked = tokio::task::spawn_blocking(move || {
        let hash: [u8; 32] = Sha256::digest(&bytes).into();
        read_import(&bytes).map(|asked| (asked, hash))
    });
    let (asked, hash) = asked.await.map_err(|_| ApiError::internal())??;
    let key = named_key(&headers, None, new_scope(&credentials), hash)?;
    let agent = asked.agent.map(|agent| agent_id(&app, &agent, "target_agent_id")).transpose()?;
    agent.iter().try_for_each(|agent| identity.check_agent(agent))?;
    let imported = engine.import(&identity, asked.source, agent, asked.reuse, key).await?;
    Ok((StatusCode::CREATED, Json(imported)))
}

struct ImportAsked {
    source: Source,
    agent: Option<String>,
    reuse: bool,
}

/// Parses the request like a bundle, which may contain what only Python accepts as JSON.
fn read_import(bytes: &[u8]) -> Api<ImportAsked> {
    let invalid = |what: &str| ApiError::new(Code::InvalidRequest, what.to_owned());
    let body = Value::parse_bytes(bytes).map_err(|e| Failure::from(OpenError::NotJson(e)))?;
    let Value::Object(mut body) = body else { return Err(invalid("the body must be an object")) };
    let mut text = |name: &'static str| match body.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.to_string_lossy().into_owned())),
        Some(_) => Err(invalid(&format!("`{name}` must be a string")).param(name)),
    };
    let (token, agent) = (text("roaming_token")?, text("target_agent_id")?);
    let reuse = match body.remove("allow_reuse") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(reuse)) => reuse,
        Some(_) => return Err(invalid("`allow_reuse` must be true or false").param("allow_reuse")),
    };
    let bundle = body.remove("bundle").filter(|bundle| !bundle.is_null());
    let source = match (token, bundle) {
        (Some(token), None) => Source::Token(token),
        (None, Some(bundle)) => {
            let (contents, cid) = Contents::open_value(bundle).map_err(Failure::from)?;
            Source::Bundle(Box::new(contents), cid)
        }
        _ => return Err(invalid("send a `roaming_token` or a `bundle`").param("roaming_token")),
    };
    Ok(ImportAsked { source, agent, reuse })
}

/// Inspect a roaming token without consuming it.
#[utoipa::path(
    get, path = "/v1/sbp/token/{token}", tag = "roaming",
    responses((status = 200, body = TokenView), (status = 422, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn inspect(
    State(app): State<Arc<App>>,
    token: Result<Path<String>, PathRejection>,
) -> Api<Json<TokenView>> {
    let token = token.map(|Path(token)| token).unwrap_or_default();
    // The token is the only credential needed to inspect it.
    Ok(Json(app.engine.inspect(&token).await?))
}

/// List the session's exports, newest first.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/exports", tag = "roaming",
    responses((status = 200, body = ExportList), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn exports(
    State(app): State<Arc<App>>,
    Named(id): Named,
    credentials: Credentials,
) -> Api<Json<ExportList>> {
    let (session, _) = app.engine.allow_in(&credentials, id, Action::TakeAway).await?;
    Ok(Json(app.engine.exports(id, session.user).await?))
}

/// Download the bundle of an export as a file (an extension of this gateway).
#[utoipa::path(
    get, path = "/v1/sessions/{id}/exports/{export_id}/bundle", tag = "roaming",
    responses((status = 200, body = Object), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn bundle(
    State(app): State<Arc<App>>,
    names: Result<Path<(String, String)>, PathRejection>,
    credentials: Credentials,
) -> Api<Response> {
    // A path that is not UTF-8 is an invalid id.
    let (id, export) = names.map(|Path(names)| names).unwrap_or_default();
    let id = body::session_id(&id)?;
    let (_, identity) = app.engine.allow_in(&credentials, id, Action::TakeAway).await?;
    let export: ExportId = export
        .parse()
        .map_err(|_| ApiError::new(Code::InvalidUuid, "the export id is not a UUID"))?;
    // Memories of other sessions are the user's, not the session's.
    let with_memory = identity.is_of_user() && identity.has(Scope::Read);
    let bundle = app.engine.bundle_of(id, export, with_memory).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], bundle).into_response())
}

/// Hand a session off to another agent.
///
/// The new session has the whole history; this one accepts no more turns and names its successor.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/handoff", tag = "roaming", request_body = HandoffRequest,
    responses(
        (status = 201, body = HandedOff),
        (status = 409, description = "It was handed over before", body = bowline_sbp::api::ErrorBody),
        (status = 422, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn handoff(
    State(app): State<Arc<App>>,
    Named(id): Named,
    headers: HeaderMap,
    credentials: Credentials,
    body: Body,
) -> Api<(StatusCode, Json<HandedOff>)> {
    let engine = &app.engine;
    let (_, identity) = engine.allow_in(&credentials, id, Action::TakeAway).await?;
    let bytes = body::read(body, &engine.limits).await?;
    let asked: HandoffRequest = body::json(&bytes)?;
    let handoff = Handoff {
        to_agent: agent_id(&app, &asked.to_agent_id, "to_agent_id")?,
        message: text("handoff_message", asked.handoff_message, LONGEST_HANDOFF_MESSAGE)?,
        reason: text("reason", asked.reason, LONGEST_REASON)?,
        // The agent's memories of other sessions are the user's, not the session's.
        memory: identity.is_of_user() && identity.has(Scope::Read),
    };
    identity.check_agent(&handoff.to_agent)?;
    let key = session_key(&headers, "handoff", &id.to_string(), &bytes)?;
    let mut handed = engine.hand_off(&app.sessions.handle(id), handoff, key).await?;
    if !identity.may_hand_out_tokens() {
        handed.session_token.clear();
        handed.new_session_token.clear();
    }
    Ok((StatusCode::CREATED, Json(handed)))
}

/// Fork a session.
///
/// The fork shares the history up to the fork point; after it both sessions are independent.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/fork", tag = "roaming", request_body = ForkRequest,
    responses((status = 201, body = Forked), (status = 422, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn fork(
    State(app): State<Arc<App>>,
    Named(id): Named,
    headers: HeaderMap,
    credentials: Credentials,
    body: Body,
) -> Api<(StatusCode, Json<Forked>)> {
    let engine = &app.engine;
    let (_, identity) = engine.allow_in(&credentials, id, Action::TakeAway).await?;
    let bytes = body::read(body, &engine.limits).await?;
    let asked: ForkRequest = body::json(&bytes)?;
    let label = text("label", asked.label, LONGEST_LABEL)?;
    let key = session_key(&headers, "fork", &id.to_string(), &bytes)?;
    let mut forked = engine.fork(id, label, asked.at_step, key).await?;
    if !identity.may_hand_out_tokens() {
        forked.session_token.clear();
        forked.fork_session_token.clear();
    }
    Ok((StatusCode::CREATED, Json(forked)))
}

/// Get a session's lineage: its origin, exports, forks and handoffs.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/lineage", tag = "roaming",
    responses((status = 200, body = Lineage), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn lineage(
    State(app): State<Arc<App>>,
    Named(id): Named,
    credentials: Credentials,
) -> Api<Json<Lineage>> {
    let (session, identity) = app.engine.allow_in(&credentials, id, Action::ReadSession).await?;
    let all = identity.is_of_user() && identity.user() == session.user && !identity.is_limited();
    Ok(Json(app.engine.lineage(&session, all).await?))
}

/// Rotate the signing key of roaming tokens. Tokens signed before stay valid until they expire.
#[utoipa::path(
    post, path = "/v1/sbp/keys/rotate", tag = "roaming",
    responses((status = 200, body = KeyRotated), (status = 401, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn rotate(
    State(app): State<Arc<App>>,
    credentials: Credentials,
) -> Api<Json<KeyRotated>> {
    app.engine.allow(&credentials, Action::Operate).await?;
    Ok(Json(app.engine.keys.rotate(&*app.engine.store).await?))
}

/// The idempotency key of an operation on a session, in a scope apart from that of its turns.
fn session_key(
    headers: &HeaderMap,
    what: &str,
    session: &str,
    body: &[u8],
) -> Api<Option<IdempotencyKey>> {
    named_key(headers, None, format!("{what}:{session}"), Sha256::digest(body).into())
}

fn text(name: &'static str, text: Option<String>, longest: usize) -> Api<Option<String>> {
    match text {
        Some(text) if text.chars().count() > longest => {
            let message = format!("`{name}` is over {longest} characters");
            Err(ApiError::new(Code::InvalidRequest, message).param(name))
        }
        text => Ok(text.filter(|text| !text.is_empty())),
    }
}

fn agent_id(app: &App, text: &str, name: &'static str) -> Api<AgentId> {
    let invalid = |why: String| ApiError::new(Code::InvalidRequest, why).param(name);
    let agent: AgentId = text.parse().map_err(|error| invalid(format!("`{name}`: {error}")))?;
    if app.engine.knows(&agent) {
        return Ok(agent);
    }
    Err(invalid(format!("`{name}`: there is no agent {text} here; `agents.known` lists them")))
}
