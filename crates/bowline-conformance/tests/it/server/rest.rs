//! Sessions over HTTP.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::http::error;
use super::sessions::NOW;
use super::{Fault, Session, State, older, text};

pub(crate) async fn make(Shared(state): Shared<Arc<State>>, body: Bytes) -> Response {
    if state.has(Fault::WantsKey) {
        return error(401, "SBP_UNAUTHORIZED");
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let own = body["session_token"].as_str().filter(|_| !state.has(Fault::OwnTokenIgnored));
    let session = Session::new(body["agent_id"].as_str().unwrap_or("default"), own);
    let status = if state.has(Fault::StatusActive) { "active" } else { "idle" };
    let made_at = (!state.has(Fault::MadeTimeless)).then_some(NOW);
    let made = json!({
        "session_id": session.id, "session_token": session.token, "agent_id": session.agent,
        "status": status, "step_count": 0, "created_at": made_at,
    });
    state.sessions().insert(session.id.clone(), session);
    (StatusCode::CREATED, axum::Json(made)).into_response()
}

/// All sessions, and who has them.
pub(crate) async fn list(Shared(state): Shared<Arc<State>>) -> Response {
    let one = |session: &Session| json!({ "session_id": session.id, "agent_id": session.agent });
    let sessions: Vec<Value> = state.sessions().values().map(one).collect();
    axum::Json(json!({ "sessions": sessions })).into_response()
}

pub(crate) async fn look(Shared(state): Shared<Arc<State>>, Path(id): Path<String>) -> Response {
    let sessions = state.sessions();
    let Some(session) = sessions.get(&id) else {
        return match state.has(Fault::UnknownForbidden) {
            true => error(403, "SBP_FORBIDDEN"),
            false => error(404, "SBP_SESSION_NOT_FOUND"),
        };
    };
    let status = match session.status() {
        "suspended" if state.has(Fault::NeverSuspended) => "running",
        "idle" | "running" if state.has(Fault::StatusActive) => "active",
        status => status,
    };
    let surface =
        session.surface.as_ref().map(|surface| match state.has(Fault::SurfaceIdForgotten) {
            true => json!({ "device_type": "unknown" }),
            false => surface.context.clone(),
        });
    let pending = if state.has(Fault::PendingUntold) { 0 } else { session.pending() };
    let mut seen = json!({
        "session_id": id, "status": status, "step_count": session.steps,
        "agent_id": session.agent, "created_at": NOW, "updated_at": NOW,
        "tether_turns_pending": pending, "surface": surface,
    });
    if state.has(Fault::OlderNames) {
        seen["queued_turns"] = seen["tether_turns_pending"].take();
        seen["surface_context"] = seen["surface"].take();
    }
    axum::Json(older(&state, seen, &["tether_turns_pending", "surface"])).into_response()
}

/// Puts turns into the Tether, as the public suite asks for it.
pub(crate) async fn tether(
    Shared(state): Shared<Arc<State>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut sessions = state.sessions();
    let Some(session) = sessions.get_mut(&id) else { return error(404, "SBP_SESSION_NOT_FOUND") };
    for turn in body["turns"].as_array().into_iter().flatten() {
        let (number, content) =
            (session.turns.len() + 1, text(&turn["turn"], "content").to_owned());
        let id = uuid::Uuid::new_v4().to_string();
        let turn = super::sessions::Turn { id, seq: number, text: content, model: "none".into() };
        session.turns.push(turn);
    }
    axum::Json(json!({ "session_id": id })).into_response()
}

/// Ends a session.
pub(crate) async fn end(
    Shared(state): Shared<Arc<State>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut sessions = state.sessions();
    let Some(session) = sessions.get_mut(&id) else { return error(404, "SBP_SESSION_NOT_FOUND") };
    session.ended = Some(text(&body, "status").to_owned());
    axum::Json(json!({ "session_id": id, "status": body["status"] })).into_response()
}
