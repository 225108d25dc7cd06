//! `/v1/sessions`: create, find, read, rename, cancel, end and delete sessions.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use bowline_sbp::access::Action;
use bowline_sbp::api::{
    CancelTurns, Cancelled, CreateSession, MessageList, MessageView, SessionCreated, SessionList,
    SessionPatch, SessionView, StatusPatch, TurnList, TurnView,
};
use bowline_sbp::bundle::LARGEST_METADATA;
use bowline_sbp::error::Code;
use bowline_sbp::id::{AgentId, SessionId};
use bowline_sbp::lifecycle::{Change, Status};
use bowline_sbp::session::{Command, LiveTurn, Reply};
use bowline_sbp::title;
use bowline_sbp::tool_result::without_images;
use bowline_store::{Entry, NewSession, Page, Session};
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::App;
use super::body;
use super::caller::agent;
use super::error::ApiError;
use super::idempotency::{named_key, new_scope};
use super::view::{view, views};
use crate::auth::{Credentials, SHORTEST_TOKEN, hash_token};
use crate::clock;
use crate::engine::Deed;
use crate::session::refused;

const LONGEST_TOKEN: usize = 512;

type Api<T> = Result<T, ApiError>;

/// Create a session.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions",
    request_body = CreateSession,
    responses(
        (status = 201, body = SessionCreated),
        (status = 401, body = bowline_sbp::api::ErrorBody),
        (status = 422, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    credentials: Credentials,
    body: Body,
) -> Api<(StatusCode, Json<SessionCreated>)> {
    let engine = &app.engine;
    let identity = engine.allow(&credentials, Action::CreateSession).await?;
    let bytes = body::read(body, &engine.limits).await?;
    let asked: CreateSession = body::json(&bytes)?;
    let in_body = asked.agent_id.as_deref().map(str::parse::<AgentId>).transpose();
    let in_body = in_body
        .map_err(|e| ApiError::new(Code::InvalidRequest, e.to_string()).param("agent_id"))?;
    let agent_id = in_body.or(agent(&headers)?).unwrap_or_else(AgentId::fallback);
    identity.check_agent(&agent_id)?;
    let own_token = asked.session_token.map(check_token).transpose()?;
    let id = SessionId(Uuid::now_v7());
    let metadata = serde_json::to_string(&asked.metadata.unwrap_or_default())
        .map_err(|e| ApiError::new(Code::InvalidRequest, e.to_string()).param("metadata"))?;
    if metadata.len() > LARGEST_METADATA {
        let message = format!("`metadata` is over {LARGEST_METADATA} bytes");
        return Err(ApiError::new(Code::InvalidRequest, message).param("metadata"));
    }
    let token = own_token.clone().unwrap_or_else(|| engine.access.token_for(id));
    let new = NewSession {
        id,
        token_hash: hash_token(&token),
        listed: own_token.is_some(),
        user: identity.user(),
        agent_id,
        metadata,
        at: clock::now(),
    };
    let key = named_key(&headers, None, new_scope(&credentials), Sha256::digest(&bytes).into())?;
    // A token may do more than a key with fewer scopes.
    let session = Session::made(&new, Status::Idle);
    let holds_token = identity.may_hold_token_of(&session);
    if own_token.is_some() && !holds_token {
        let message = "a key with fewer scopes than a session's token cannot choose the token";
        return Err(ApiError::new(Code::Forbidden, message).param("session_token"));
    }
    let session = engine.store.create_session(new, key).await?.session;
    engine.audit.did(&identity, Deed::CreateSession, session.id);
    metrics::counter!("bowline_sessions_created_total").increment(1);
    let created = SessionCreated {
        session_id: session.id,
        session_token: match holds_token {
            true => own_token.unwrap_or_else(|| engine.access.token_for(session.id)),
            false => String::new(),
        },
        agent_id: session.agent_id,
        status: Status::Idle,
        step_count: 0,
        created_at: session.created_at,
    };
    Ok((StatusCode::CREATED, Json(created)))
}

fn check_token(token: String) -> Api<String> {
    let fits = (SHORTEST_TOKEN..=LONGEST_TOKEN).contains(&token.len());
    if fits && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(token);
    }
    let message =
        format!("`session_token` must be {SHORTEST_TOKEN} to {LONGEST_TOKEN} visible characters");
    Err(ApiError::new(Code::InvalidRequest, message).param("session_token"))
}

/// The session id in the path.
pub(crate) struct Named(pub(super) SessionId);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Api<Self> {
        // A path that is not UTF-8 is an invalid session id, too.
        let path = Path::<String>::from_request_parts(parts, state).await;
        body::session_id(&path.map(|Path(id)| id).unwrap_or_default()).map(Self)
    }
}

pub(super) fn bad_query(rejection: QueryRejection) -> ApiError {
    ApiError::new(Code::InvalidRequest, rejection.body_text())
}

/// The session, if it exists and the caller may do that in it.
async fn allowed(app: &App, shown: &Credentials, Named(id): Named, action: Action) -> Api<Session> {
    super::find(&app.engine, id, shown, action).await
}

/// Get a session.
#[utoipa::path(
    get, path = "/v1/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, description = "The session's id")),
    responses((status = 200, body = SessionView), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    id: Named,
    credentials: Credentials,
) -> Api<Json<SessionView>> {
    let session = allowed(&app, &credentials, id, Action::ReadSession).await?;
    Ok(Json(view(&app, session).await))
}

#[derive(Debug, Deserialize)]
pub(crate) struct ListQuery {
    limit: Option<u32>,
    before: Option<String>,
    status: Option<String>,
    named: Option<String>,
}

/// List sessions, newest first.
#[utoipa::path(
    get, path = "/v1/sessions", tag = "sessions",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 200, default 50"),
        ("before" = Option<String>, Query, description = "`next` of the page before"),
        ("status" = Option<String>, Query, description = "Only sessions in this state"),
        ("named" = Option<String>, Query, description = "Instead: the sessions that this text \
            names, by id, by the first 4 or more digits of the id, by title, or by the beginning \
            of the title"),
    ),
    responses((status = 200, body = SessionList)),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    query: Result<Query<ListQuery>, QueryRejection>,
    credentials: Credentials,
) -> Api<Json<SessionList>> {
    let identity = app.engine.allow(&credentials, Action::ListSessions).await?;
    let user = identity.user();
    let is_for = |session: &Session| identity.check_agent(&session.agent_id).is_ok();
    let Query(query) = query.map_err(bad_query)?;
    if let Some(text) = query.named {
        let sessions = app.engine.store.named(user, text).await?.into_iter().filter(is_for);
        let sessions = views(&app, sessions.collect()).await;
        return Ok(Json(SessionList { sessions, next: None }));
    }
    let limit = query.limit.unwrap_or(50).clamp(1, 200);
    let status = query.status.as_deref().map(str::parse).transpose();
    let page = Page {
        user,
        before: query.before.as_deref().map(body::session_id).transpose()?,
        // One more than asked for tells whether there is a next page.
        limit: limit + 1,
        status: status.map_err(|error| {
            ApiError::new(Code::InvalidRequest, format!("{error}")).param("status")
        })?,
    };
    let mut sessions = app.engine.store.sessions(page).await?;
    let more = sessions.len() > limit as usize;
    sessions.truncate(limit as usize);
    let next = sessions.last().map(|session| session.id).filter(|_| more);
    let sessions = sessions.into_iter().filter(is_for);
    let sessions = views(&app, sessions.collect()).await;
    Ok(Json(SessionList { sessions, next }))
}

/// Rename a session; an empty title returns to the automatic one.
#[utoipa::path(
    patch, path = "/v1/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, description = "The session's id")),
    request_body = SessionPatch,
    responses((status = 200, body = SessionView), (status = 422, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn rename(
    State(app): State<Arc<App>>,
    id: Named,
    credentials: Credentials,
    body: Body,
) -> Api<Json<SessionView>> {
    let session = allowed(&app, &credentials, id, Action::ChangeSession).await?;
    let bytes = body::read(body, &app.engine.limits).await?;
    let title = title::given(&body::json::<SessionPatch>(&bytes)?.title)
        .map_err(|error| ApiError::new(Code::InvalidRequest, error.to_string()).param("title"))?;
    app.sessions.handle(session.id).done(Command::SetTitle(title)).await?;
    changed(&app, session.id).await
}

/// Delete a session and everything it holds.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, description = "The session's id")),
    responses((status = 204, description = "Gone"), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    id: Named,
    credentials: Credentials,
) -> Api<StatusCode> {
    let (session, by) = app.engine.allow_in(&credentials, id.0, Action::DeleteSession).await?;
    match app.sessions.handle(session.id).done(Command::Delete).await {
        // It was there just now. A delete whose commit was sent again, because its answer was lost, finds no
        // session: what proves that a commit was applied is in the session's row.
        Err(gone) if gone.code == Code::SessionNotFound => {}
        deleted => deleted?,
    }
    app.engine.announcements_changed();
    app.engine.audit.did(&by, Deed::DeleteSession, session.id);
    Ok(StatusCode::NO_CONTENT)
}

/// End, suspend or resume a session.
#[utoipa::path(
    patch, path = "/v1/sessions/{id}/status", tag = "sessions",
    params(("id" = String, Path, description = "The session's id")),
    request_body = StatusPatch,
    responses((status = 200, body = SessionView), (status = 409, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn patch_status(
    State(app): State<Arc<App>>,
    id: Named,
    credentials: Credentials,
    body: Body,
) -> Api<Json<SessionView>> {
    let session = allowed(&app, &credentials, id, Action::ChangeSession).await?;
    let bytes = body::read(body, &app.engine.limits).await?;
    let change = match body::json::<StatusPatch>(&bytes)?.status {
        Status::Suspended => Change::Suspend,
        Status::Running => Change::Resumed,
        Status::Completed => Change::Complete,
        Status::Failed => Change::Fail,
        Status::Idle => {
            let message = "a session cannot be made idle again";
            return Err(ApiError::new(Code::InvalidRequest, message).param("status"));
        }
    };
    app.sessions.handle(session.id).done(Command::SetStatus(change)).await?;
    changed(&app, session.id).await
}

/// The session after a change.
async fn changed(app: &App, id: SessionId) -> Api<Json<SessionView>> {
    let session = app.engine.store.session(id).await?;
    Ok(Json(view(app, session.ok_or_else(ApiError::no_session)?).await))
}

/// Cancel the running turn, or the named turns; partial answers are kept.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/cancel", tag = "turns",
    params(("id" = String, Path, description = "The session's id")),
    request_body = CancelTurns,
    responses((status = 200, body = Cancelled)),
)]
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    id: Named,
    credentials: Credentials,
    body: Body,
) -> Api<Json<Cancelled>> {
    let session_id = allowed(&app, &credentials, id, Action::Talk).await?.id;
    let asked: Option<CancelTurns> = body::json(&body::read(body, &app.engine.limits).await?)?;
    let CancelTurns { turns } = asked.unwrap_or_default();
    let nothing = Cancelled { session_id, cancelled: false, turn_id: None, turns: Vec::new() };
    // Without an actor no turn runs or waits.
    if app.sessions.look(session_id).await.is_none() {
        return Ok(Json(nothing));
    }
    let running = turns.is_empty();
    let cancel = Command::Cancel { turns, running };
    Ok(Json(match app.sessions.handle(session_id).call(cancel).await? {
        Reply::Cancelled { turns } => Cancelled {
            cancelled: !turns.is_empty(),
            turn_id: turns.first().copied(),
            turns,
            ..nothing
        },
        Reply::Refused(refusal) => return Err(refused(refusal).into()),
        _ => nothing,
    }))
}

/// List the running and waiting turns, in order.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/turns", tag = "turns",
    params(("id" = String, Path, description = "The session's id")),
    responses((status = 200, body = TurnList), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn turns(
    State(app): State<Arc<App>>,
    id: Named,
    credentials: Credentials,
) -> Api<Json<TurnList>> {
    let session_id = allowed(&app, &credentials, id, Action::ReadSession).await?.id;
    let live = app.sessions.look(session_id).await;
    let view = |turn: &LiveTurn| TurnView {
        turn_id: turn.id,
        running: turn.running,
        attempt: turn.attempt,
        question: turn.question.as_deref().map(str::to_owned),
    };
    let turns = live.map_or_else(Vec::new, |live| live.turns.iter().map(view).collect());
    Ok(Json(TurnList { session_id, turns }))
}

#[derive(Debug, Deserialize)]
pub(crate) struct MessagesQuery {
    after: Option<u64>,
    before: Option<u64>,
    limit: Option<u32>,
}

/// Read a session's log.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/messages", tag = "sessions",
    params(
        ("id" = String, Path, description = "The session's id"),
        ("after" = Option<u64>, Query, description = "Entries after this position"),
        ("before" = Option<u64>, Query, description = "Instead: the entries just before it"),
        ("limit" = Option<u32>, Query, description = "1 to 500, default 100"),
    ),
    responses((status = 200, body = MessageList)),
)]
pub(crate) async fn messages(
    State(app): State<Arc<App>>,
    id: Named,
    query: Result<Query<MessagesQuery>, QueryRejection>,
    credentials: Credentials,
) -> Api<Json<MessageList>> {
    let session = allowed(&app, &credentials, id, Action::ReadSession).await?;
    let Query(query) = query.map_err(bad_query)?;
    let limit = query.limit.unwrap_or(100).clamp(1, 500);
    let store = &app.engine.store;
    let (entries, more) = match query.before {
        Some(before) => {
            let entries = store.entries_before(session.id, before, limit).await?;
            let more = entries.first().is_some_and(|first| first.seq > 1);
            (entries, more)
        }
        None => {
            let entries = store.entries_after(session.id, query.after.unwrap_or(0), limit).await?;
            let more = entries.last().is_some_and(|last| last.seq < session.last_seq);
            (entries, more)
        }
    };
    Ok(Json(MessageList { messages: entries.into_iter().map(message).collect(), more }))
}

pub(super) fn message(entry: Entry) -> MessageView {
    // A page of images could be larger than any client expects.
    let message = without_images(&entry.message);
    MessageView {
        seq: entry.seq,
        kind: entry.kind.as_str(),
        turn_id: Some(entry.turn_id),
        message: RawValue::from_string(message.as_json().to_owned()).unwrap_or_default(),
        model_used: entry.model,
        cost_usd: entry.cost_usd,
        status: entry.status,
        agent_id: entry.agent_id,
        author: entry.author,
        created_at: entry.created_at,
    }
}
