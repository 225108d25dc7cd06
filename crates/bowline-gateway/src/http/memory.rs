//! An agent's memories over HTTP: list, write and delete.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use bowline_sbp::access::Action;
use bowline_sbp::api::{MemoryList, MemoryView, NewMemories};
use bowline_sbp::bundle::LONGEST_MEMORY;
use bowline_sbp::error::Code;
use bowline_sbp::id::{AgentId, MemoryId};
use bowline_store::{Memory, MemoryKind, MemoryOwner, NewMemory};
use serde::Deserialize;
use uuid::Uuid;

use super::error::ApiError;
use super::sessions::bad_query;
use super::{App, body};
use crate::auth::Credentials;
use crate::clock;
use crate::engine::words;

type Api<T> = Result<T, ApiError>;

const PAGE: u32 = 100;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
pub(crate) struct Which {
    /// Only memories that match these words, best match first.
    q: Option<String>,
    /// Only memories older than this one.
    before: Option<String>,
    /// The most memories to return; default 100, at most 1000.
    limit: Option<u32>,
}

/// List an agent's memories.
///
/// Newest first, or with `q` the best match first.
#[utoipa::path(
    get, path = "/v1/agents/{agent_id}/memory", tag = "memory", params(Which),
    responses((status = 200, body = MemoryList), (status = 401, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Path(agent): Path<String>,
    which: Result<Query<Which>, QueryRejection>,
    credentials: Credentials,
) -> Api<Json<MemoryList>> {
    let agent = agent_of(&app, &agent, &credentials, Action::ReadMemory).await?;
    let Query(which) = which.map_err(bad_query)?;
    let limit = which.limit.unwrap_or(PAGE).clamp(1, 1000);
    let store = &app.engine.store;
    let found = match which.q {
        Some(q) => store.recall(agent.clone(), words(&q), limit).await?,
        None => {
            let before = which.before.as_deref().map(memory_id).transpose()?;
            store.memories(agent.clone(), before, limit).await?
        }
    };
    Ok(Json(view(agent.agent, found)))
}

/// Replace all memories of an agent.
#[utoipa::path(
    put, path = "/v1/agents/{agent_id}/memory", tag = "memory", request_body = NewMemories,
    responses((status = 200, body = MemoryList), (status = 422, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn replace(
    app: State<Arc<App>>,
    agent: Path<String>,
    credentials: Credentials,
    body: Body,
) -> Api<Json<MemoryList>> {
    write(app, agent, credentials, body, true).await
}

/// Add memories to an agent. A memory with the same text is not added twice.
#[utoipa::path(
    post, path = "/v1/agents/{agent_id}/memory", tag = "memory", request_body = NewMemories,
    responses((status = 200, body = MemoryList), (status = 422, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn add(
    app: State<Arc<App>>,
    agent: Path<String>,
    credentials: Credentials,
    body: Body,
) -> Api<Json<MemoryList>> {
    write(app, agent, credentials, body, false).await
}

async fn write(
    State(app): State<Arc<App>>,
    Path(agent): Path<String>,
    credentials: Credentials,
    body: Body,
    instead: bool,
) -> Api<Json<MemoryList>> {
    let agent = agent_of(&app, &agent, &credentials, Action::WriteMemory).await?;
    let bytes = body::read(body, &app.engine.limits).await?;
    let asked: NewMemories = body::json(&bytes)?;
    let at = clock::now();
    let new = asked.memories.into_iter().map(|memory| {
        let invalid = |why: &str| ApiError::new(Code::InvalidRequest, why).param("memories");
        let text = memory.text.trim().to_owned();
        if text.is_empty() || text.len() > LONGEST_MEMORY {
            return Err(invalid(&format!("a memory's `text` is 1 to {LONGEST_MEMORY} bytes")));
        }
        let kind = MemoryKind::named(memory.kind.as_deref().unwrap_or("semantic"));
        let kind =
            kind.ok_or_else(|| invalid("a memory's `kind` is semantic, episodic or procedural"))?;
        Ok(NewMemory { id: MemoryId(Uuid::now_v7()), kind, text, session_id: None, at })
    });
    let new = new.collect::<Api<_>>()?;
    let written = app.engine.store.remember(agent.clone(), new, instead).await?;
    Ok(Json(view(agent.agent, written)))
}

/// Delete all memories of an agent.
#[utoipa::path(
    delete, path = "/v1/agents/{agent_id}/memory", tag = "memory",
    responses((status = 204, description = "Forgotten")),
)]
pub(crate) async fn forget_all(
    State(app): State<Arc<App>>,
    Path(agent): Path<String>,
    credentials: Credentials,
) -> Api<StatusCode> {
    let agent = agent_of(&app, &agent, &credentials, Action::WriteMemory).await?;
    app.engine.store.forget(agent, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete one memory.
#[utoipa::path(
    delete, path = "/v1/agents/{agent_id}/memory/{memory_id}", tag = "memory",
    responses(
        (status = 204, description = "Forgotten"),
        (status = 404, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn forget(
    State(app): State<Arc<App>>,
    Path((agent, memory)): Path<(String, String)>,
    credentials: Credentials,
) -> Api<StatusCode> {
    let agent = agent_of(&app, &agent, &credentials, Action::WriteMemory).await?;
    match app.engine.store.forget(agent, Some(memory_id(&memory)?)).await? {
        0 => Err(ApiError::new(Code::NotFound, "the agent has no such memory")),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

/// Whose memories: the same agent is another one for each user. Its memories are shared by all of the
/// user's sessions, so a session token is not enough.
async fn agent_of(
    app: &App,
    agent: &str,
    credentials: &Credentials,
    action: Action,
) -> Api<MemoryOwner> {
    let identity = app.engine.allow(credentials, action).await?;
    let agent: AgentId = agent.parse().map_err(|error| {
        ApiError::new(Code::InvalidRequest, format!("{error}")).param("agent_id")
    })?;
    identity.check_agent(&agent)?;
    Ok(MemoryOwner { user: identity.user(), agent })
}

fn memory_id(text: &str) -> Api<MemoryId> {
    text.parse().map_err(|_| ApiError::new(Code::InvalidUuid, "the memory id is not a UUID"))
}

fn view(agent_id: AgentId, memories: Vec<Memory>) -> MemoryList {
    let memories = memories.into_iter().map(|memory| MemoryView {
        id: memory.id,
        kind: memory.kind.as_str(),
        text: memory.text,
        session_id: memory.session_id,
        created_at: memory.created_at,
    });
    MemoryList { agent_id, memories: memories.collect() }
}
