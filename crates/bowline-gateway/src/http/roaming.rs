//! Export, handoff and fork over HTTP (SBP-L3).

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bowline_sbp::access::Action;
use bowline_sbp::api::{
    ExportList, ExportRequest, Exported, ForkRequest, Forked, HandedOff, HandoffRequest,
    IdentityView, KeyRotated, Lineage, TokenView,
};
use bowline_sbp::error::Code;
use bowline_sbp::federation::GatewayId;
use bowline_sbp::id::{AgentId, ExportId};
use bowline_sbp::roaming_token::LONGEST_TTL;
use bowline_store::IdempotencyKey;
use jiff::SignedDuration;
use sha2::{Digest, Sha256};

use super::error::ApiError;
use super::idempotency::named_key;
use super::sessions::Named;
use super::{App, body};
use crate::auth::Credentials;
use crate::engine::{Deed, Handoff};

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
    let (session, identity) = engine.allow_in(&credentials, id, Action::TakeAway).await?;
    let asked: ExportRequest = body::json(&body::read(body, &engine.limits).await?)?;
    let ttl = asked.ttl_seconds.unwrap_or(USUAL_TTL);
    if !(SHORTEST_TTL..=LONGEST_TTL).contains(&ttl) {
        let message = format!("`ttl_seconds` must be {SHORTEST_TTL} to {LONGEST_TTL}");
        return Err(ApiError::new(Code::InvalidRequest, message).param("ttl_seconds"));
    }
    let label = text("label", asked.label, LONGEST_LABEL)?;
    let ttl = SignedDuration::from_secs(ttl.into());
    let may_read = identity.may_read_memory_of(&session);
    if asked.with_memory == Some(true) && !may_read {
        let message = "`with_memory` takes a key of the session's user with the scope `read`";
        return Err(ApiError::new(Code::Forbidden, message).param("with_memory"));
    }
    let with_memory = asked.with_memory.unwrap_or(may_read);
    let peer = asked.for_gateway.map(|id| id.parse::<GatewayId>()).transpose();
    let peer = peer.map_err(|error| {
        ApiError::new(Code::InvalidRequest, error.to_string()).param("for_gateway")
    })?;
    let has_trackers = engine.federation.as_ref().is_some_and(|known| known.has_trackers());
    if asked.announce && !has_trackers {
        let message = "this gateway has no tracker that it could tell";
        let error = ApiError::new(Code::InvalidRequest, message).param("announce");
        return Err(error.detail("name one in `federation.trackers` (--tracker ID=URL)"));
    }
    let to = (peer, asked.announce);
    let exported = engine.export(id, ttl, label, with_memory, to, identity.spender()).await?;
    engine.audit.did(&identity, Deed::ExportSession, format!("{id} {}", exported.export_id));
    Ok((StatusCode::CREATED, Json(exported)))
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
    responses(
        (status = 200, body = Object),
        (status = 403, description = "It has memory that the caller may not read", body = bowline_sbp::api::ErrorBody),
        (status = 404, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn bundle(
    State(app): State<Arc<App>>,
    names: Result<Path<(String, String)>, PathRejection>,
    credentials: Credentials,
) -> Api<Response> {
    // A path that is not UTF-8 is an invalid id.
    let (id, export) = names.map(|Path(names)| names).unwrap_or_default();
    let id = body::session_id(&id)?;
    let (session, identity) = app.engine.allow_in(&credentials, id, Action::TakeAway).await?;
    let export: ExportId = export
        .parse()
        .map_err(|_| ApiError::new(Code::InvalidUuid, "the export id is not a UUID"))?;
    let bundle = app.engine.bundle_of(&identity, &session, export).await?;
    app.engine.audit.did(&identity, Deed::DownloadBundle, format!("{id} {export}"));
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
    let (session, identity) = engine.allow_in(&credentials, id, Action::TakeAway).await?;
    let bytes = body::read(body, &engine.limits).await?;
    let asked: HandoffRequest = body::json(&bytes)?;
    let handoff = Handoff {
        to_agent: agent_id(&app, &asked.to_agent_id, "to_agent_id")?,
        message: text("handoff_message", asked.handoff_message, LONGEST_HANDOFF_MESSAGE)?,
        reason: text("reason", asked.reason, LONGEST_REASON)?,
        memory: identity.may_read_memory_of(&session),
    };
    identity.check_agent(&handoff.to_agent)?;
    let key = session_key(&headers, "handoff", &id.to_string(), &bytes)?;
    let mut handed = engine.hand_off(&app.sessions.handle(id), handoff, key).await?;
    engine.audit.did(&identity, Deed::HandOffSession, format!("{id} {}", handed.new_session_id));
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
    engine.audit.did(&identity, Deed::ForkSession, format!("{id} {}", forked.fork_session_id));
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
    let by = app.engine.allow(&credentials, Action::Operate).await?;
    let rotated = app.engine.keys.rotate(&*app.engine.store).await?;
    app.engine.audit.change(&by, Deed::RotateSigningKey, &rotated.key_id).await?;
    Ok(Json(rotated))
}

/// The public key with which this gateway signs what it exports. Open to everyone.
#[utoipa::path(
    get, path = "/v1/sbp/identity", tag = "roaming",
    responses((status = 200, body = IdentityView)),
)]
pub(crate) async fn identity(State(app): State<Arc<App>>) -> Json<IdentityView> {
    let key = app.engine.signer.public();
    Json(IdentityView {
        algorithm: "ed25519".to_owned(),
        key: key.to_string(),
        fingerprint: key.fingerprint().to_string(),
    })
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

pub(super) fn agent_id(app: &App, text: &str, name: &'static str) -> Api<AgentId> {
    let invalid = |why: String| ApiError::new(Code::InvalidRequest, why).param(name);
    let agent: AgentId = text.parse().map_err(|error| invalid(format!("`{name}`: {error}")))?;
    if app.engine.knows(&agent) {
        return Ok(agent);
    }
    Err(invalid(format!("`{name}`: there is no agent {text} here; `agents.known` lists them")))
}
