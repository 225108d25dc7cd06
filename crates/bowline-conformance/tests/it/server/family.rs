//! Forks, handoffs and lineage.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::http::error;
use super::sessions::Origin;
use super::{Fault, Session, State, exports, older};

pub(crate) async fn fork(
    Shared(state): Shared<Arc<State>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut sessions = state.sessions();
    let Some(origin) = sessions.get(&id) else { return error(404, "SBP_SESSION_NOT_FOUND") };
    let mut fork = Session::new(&origin.agent, None);
    if !state.has(Fault::ForkForgets) {
        fork.messages = origin.messages.clone();
    }
    if !state.has(Fault::ForkStepsLost) {
        fork.steps = origin.steps;
    }
    fork.origin = Origin::Fork { session: id.clone() };
    let made = json!({
        "fork_session_id": fork.id, "session_token": fork.token,
        "fork_session_token": fork.token, "origin_session_id": id, "fork_label": body["label"],
        "fork_point_msg": origin.messages.len(), "fork_point_step": origin.steps,
    });
    sessions.insert(fork.id.clone(), fork);
    (StatusCode::CREATED, axum::Json(made)).into_response()
}

pub(crate) async fn hand_off(
    Shared(state): Shared<Arc<State>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(export) = exports::make(&state, &id, 60, &Value::Null) else {
        return error(404, "SBP_SESSION_NOT_FOUND");
    };
    let mut sessions = state.sessions();
    let source = sessions.get_mut(&id).expect("it was exported");
    if source.ended.is_some() && state.has(Fault::EndedNotHandedOff) {
        return error(409, "SBP_SESSION_CONFLICT");
    }
    let mut next = Session::new(super::text(&body, "to_agent_id"), None);
    next.messages = source.messages.clone();
    if !state.has(Fault::HandoffForgetsMessage) {
        let bridge = json!({ "role": "system", "content": body["handoff_message"] });
        next.messages.push(bridge);
    }
    next.steps = source.steps;
    next.origin = Origin::Handoff { session: id.clone() };
    if !state.has(Fault::HandoffLeavesSource) {
        source.resumed = false;
        source.next = Some(next.id.clone());
    }
    let made = json!({
        "session_id": next.id, "new_session_id": next.id, "session_token": next.token,
        "new_session_token": next.token, "from_session_id": id, "source_session_id": id,
        "to_agent_id": next.agent, "export_id": export.id, "origin_export_id": export.id,
    });
    sessions.insert(next.id.clone(), next);
    let newer = ["new_session_id", "new_session_token", "source_session_id", "export_id"];
    (StatusCode::CREATED, axum::Json(older(&state, made, &newer))).into_response()
}

pub(crate) async fn lineage(Shared(state): Shared<Arc<State>>, Path(id): Path<String>) -> Response {
    let exports = exports::of(&state, &id);
    let sessions = state.sessions();
    let Some(session) = sessions.get(&id) else { return error(404, "SBP_SESSION_NOT_FOUND") };
    let made_by = |origin: Origin| -> Vec<Value> {
        let children = sessions.values().filter(|child| child.origin == origin);
        children.map(|child| json!({ "session_id": child.id })).collect()
    };
    let mut forks = made_by(Origin::Fork { session: id.clone() });
    if state.has(Fault::NoForksInLineage) {
        forks.clear();
    }
    let (mut incoming, mut origin) = (Vec::new(), Value::Null);
    match &session.origin {
        Origin::New | Origin::Import { session: None } => {}
        Origin::Handoff { session } => incoming.push(json!({ "session_id": session })),
        Origin::Fork { session } | Origin::Import { session: Some(session) } => {
            origin = json!({ "session_id": session });
        }
    }
    axum::Json(json!({
        "session_id": id, "exports": exports, "forks": forks, "origin": origin,
        "outgoing_handoffs": made_by(Origin::Handoff { session: id.clone() }),
        "incoming_handoffs": incoming,
    }))
    .into_response()
}
