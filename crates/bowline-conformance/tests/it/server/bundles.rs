//! Bundles, and the sessions that are made of them.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use bowline_conformance::keys::content_id;
use serde_json::{Value, json};

use super::http::error;
use super::sessions::NOW;
use super::{Fault, Session, State, text};

/// The bundle of a session, signed, and its content id.
pub(crate) fn bundle(
    state: &State,
    session: &Session,
    export: &str,
    label: &Value,
) -> (Value, String) {
    let message = |message: &Value| {
        let mut message = message.clone();
        message["model_used"] = json!("m");
        message["created_at"] = json!(NOW);
        if !state.has(Fault::BundleWithoutCosts) {
            message["cost_usd"] = json!(0.0);
        }
        message
    };
    let bundle = json!({
        "sbp_version": "1.0", "exported_at": NOW, "label": label,
        "session": {
            "id": session.id, "agent_external_id": session.agent, "status": session.status(),
            "last_task": null, "created_at": NOW, "step_count": session.steps,
        },
        "messages": session.messages.iter().map(message).collect::<Vec<_>>(),
        "memory": { "schema_id": "urn:small:1", "payload": {} },
        "state_snapshot": null,
        "metadata": {
            "export_id": export, "message_count": session.messages.len(), "total_cost_usd": 0.0,
        },
    });
    let (mut bundle, mut cid) = match state.has(Fault::Unsigned) {
        true => {
            let mut bundle = bundle;
            let cid = content_id(&bundle.to_string()).unwrap();
            bundle["bundle_cid"] = json!(cid);
            (bundle, cid)
        }
        false => state.identity.sealed(bundle),
    };
    if state.has(Fault::OtherHash) {
        cid = "1".repeat(64);
        bundle["bundle_cid"] = json!(cid);
    }
    (bundle, cid)
}

/// Whether the content id fits.
pub(crate) fn is_whole(state: &State, bundle: &Value) -> bool {
    let fits = content_id(&bundle.to_string()).as_deref() == bundle["bundle_cid"].as_str();
    fits || state.has(Fault::AnyBundle)
}

/// The session that a bundle describes.
pub(crate) fn session_of(
    state: &State,
    bundle: &Value,
    agent: &str,
) -> Result<Session, Box<Response>> {
    let known = text(&bundle["memory"], "schema_id") == "urn:small:1";
    let has_memory = bundle["memory"].is_object();
    if has_memory && !known && state.has(Fault::UnknownMemoryRefused) {
        return Err(Box::new(error(422, "SBP_INVALID_REQUEST")));
    }
    let mut session = Session::new(agent, None);
    session.messages = bundle["messages"].as_array().cloned().unwrap_or_default();
    if state.has(Fault::ImportReversed) {
        session.messages.reverse();
    }
    session.steps = bundle["session"]["step_count"].as_u64().unwrap_or_default();
    session.model = Some("conformance".into());
    Ok(session)
}

pub(crate) async fn schema(Shared(state): Shared<Arc<State>>) -> Response {
    match state.has(Fault::NoSchema) {
        true => error(404, "SBP_NOT_FOUND"),
        false => axum::Json(json!({ "$schema": "https://json-schema.org/" })).into_response(),
    }
}
