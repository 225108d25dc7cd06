//! Imports: of this server's own tokens, of those of other gateways, and of bundles.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bowline_conformance::keys::peek;
use serde_json::{Value, json};

use super::http::error;
use super::sessions::Origin;
use super::{Fault, Session, State, abroad, bundles, exports, older, text};

type Imported<T> = Result<T, Box<Response>>;

pub(crate) async fn import(Shared(state): Shared<Arc<State>>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let token = text(&body, "roaming_token");
    let issuer = peek(token).map(|(_, claims)| claims["iss"].clone());
    if body["bundle"].is_object() && state.has(Fault::TokensOnly) {
        return error(415, "SBP_INVALID_REQUEST");
    }
    let made = match (&body["bundle"], issuer) {
        (bundle @ Value::Object(_), _) => of_bundle(&state, &body, bundle, Origin::New),
        (_, Some(Value::String(issuer))) if issuer != super::ID => {
            match abroad::fetched(&state, token).await {
                Ok(bundle) => {
                    let made = of_bundle(&state, &body, &bundle, Origin::Import { session: None });
                    made.inspect(|made| abroad::arrived(&state, text(made, "session_id")))
                }
                Err(refused) => {
                    if state.has(Fault::RefusedIsKept) {
                        let kept = Session::new(text(&body, "target_agent_id"), None);
                        state.sessions().insert(kept.id.clone(), kept);
                    }
                    Err(refused)
                }
            }
        }
        _ => of_token(&state, &body),
    };
    match made {
        Ok(made) => {
            let made = older(&state, made, &["session_id", "message_count"]);
            (StatusCode::CREATED, axum::Json(made)).into_response()
        }
        Err(refused) => *refused,
    }
}

/// The session that a surface brings by a token of another gateway; nothing, if it cannot.
pub(crate) async fn brought(state: &State, token: &str) -> Option<String> {
    let (_, claims) = peek(token)?;
    if text(&claims, "iss") == super::ID || state.has(Fault::AttachBringsNothing) {
        return None;
    }
    let bundle = abroad::fetched(state, token).await.ok()?;
    let asked = json!({ "target_agent_id": "default" });
    let made = of_bundle(state, &asked, &bundle, Origin::Import { session: None }).ok()?;
    Some(text(&made, "session_id").to_owned())
}

/// Of a token of this server's.
fn of_token(state: &State, body: &Value) -> Imported<Value> {
    let export = exports::read(state, text(body, "roaming_token"))?;
    let consumes = body["allow_reuse"] != true || state.has(Fault::ReuseConsumes);
    if consumes && !state.has(Fault::TokensReusable) {
        let mut all = state.exports();
        let kept = all.get_mut(&export.id).expect("it was read");
        if std::mem::replace(&mut kept.used, true) {
            return Err(Box::new(error(410, "SBP_TOKEN_CONSUMED")));
        }
    }
    let origin = Origin::Import { session: Some(export.session.clone()) };
    let made = of_bundle(state, body, &export.bundle, origin)?;
    if let Some(kept) = state.exports().get_mut(&export.id) {
        kept.imported = Some(text(&made, "session_id").to_owned());
    }
    Ok(made)
}

/// Of a bundle. What this server exported itself is not checked again.
fn of_bundle(state: &State, body: &Value, bundle: &Value, origin: Origin) -> Imported<Value> {
    let carried = body["bundle"].is_object();
    if carried && !bundles::is_whole(state, bundle) {
        return Err(Box::new(error(422, "SBP_TOKEN_INTEGRITY")));
    }
    let is_own = matches!(origin, Origin::Import { session: Some(_) });
    let agent = match is_own && state.has(Fault::ImportKeepsAgent) {
        true => text(&bundle["session"], "agent_external_id"),
        false => text(body, "target_agent_id"),
    };
    let mut session = bundles::session_of(state, bundle, agent)?;
    session.origin = origin;
    let is_signed = bundle.pointer("/metadata/bowline/signature").is_some();
    let made = json!({
        "session_id": session.id, "new_session_id": session.id, "session_token": session.token,
        "agent_id": session.agent, "step_count": session.steps,
        "message_count": session.messages.len(), "messages_restored": session.messages.len(),
        "origin_export_id": bundle["metadata"]["export_id"], "memory_restored": false,
        "provenance": "imported", "signature": { "state": if is_signed { "signed" } else { "unsigned" } },
    });
    state.sessions().insert(session.id.clone(), session);
    Ok(made)
}
