//! Exports and roaming tokens.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bowline_conformance::keys::peek;
use serde_json::{Value, json};
use uuid::Uuid;

use super::http::error;
use super::sessions::NOW;
use super::{Fault, State, bundles, federated, older, text};

/// An export.
#[derive(Debug, Clone)]
pub(crate) struct Export {
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) bundle: Value,
    pub(crate) cid: String,
    /// Seconds since 1970.
    pub(crate) expires: u64,
    pub(crate) used: bool,
    pub(crate) imported: Option<String>,
}

impl Export {
    fn listed(&self) -> Value {
        json!({
            "export_id": self.id, "session_id": self.session, "created_at": NOW, "expires_at": NOW,
            "imported_at": self.imported.as_ref().map(|_| NOW), "import_session_id": self.imported,
        })
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Exports a session; nothing if there is none.
pub(crate) fn make(state: &State, session: &str, ttl: u64, label: &Value) -> Option<Export> {
    let id = Uuid::new_v4().to_string();
    let (bundle, cid) = bundles::bundle(state, state.sessions().get(session)?, &id, label);
    let (session, expires) = (session.to_owned(), now() + ttl);
    let export = Export { id, session, bundle, cid, expires, used: false, imported: None };
    state.exports().insert(export.id.clone(), export.clone());
    Some(export)
}

/// The exports of a session.
pub(crate) fn of(state: &State, session: &str) -> Vec<Value> {
    let exports = state.exports();
    exports.values().filter(|export| export.session == session).map(Export::listed).collect()
}

pub(crate) async fn export(
    Shared(state): Shared<Arc<State>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let ttl = body["ttl_seconds"].as_u64().unwrap_or(86_400);
    if !(60..=604_800).contains(&ttl) && !state.has(Fault::AnyLifetime) {
        return error(422, "SBP_INVALID_REQUEST");
    }
    let Some(export) = make(&state, &id, ttl, &body["label"]) else {
        return error(404, "SBP_SESSION_NOT_FOUND");
    };
    let mut claims = json!({ "sub": export.id, "sid": id, "iat": now(), "exp": export.expires });
    if !state.has(Fault::TokensForHome) {
        claims["iss"] = json!(super::ID);
        claims["cid"] = json!(export.cid);
        claims["url"] = json!(state.url);
    }
    federated::announce(&state, &export);
    if state.has(Fault::NoExpiry) {
        claims["exp"] = Value::Null;
    }
    let made = json!({
        "export_id": export.id, "roaming_token": state.identity.token("JWT", &claims),
        "session_id": id, "expires_at": NOW, "bundle_cid": export.cid, "bundle_hash": export.cid,
        "message_count": export.bundle["messages"].as_array().map(Vec::len),
        "label": body["label"],
    });
    (StatusCode::CREATED, axum::Json(older(&state, made, &["bundle_cid"]))).into_response()
}

/// The export that a token of this server's means, if it is good.
pub(crate) fn read(state: &State, token: &str) -> Result<Export, Box<Response>> {
    let invalid = || Box::new(error(422, "SBP_TOKEN_INVALID"));
    let claims = match state.identity.key().claims(token) {
        None if state.has(Fault::AnySignature) => peek(token).map(|(_, claims)| claims),
        claims => claims,
    };
    let claims = claims.ok_or_else(invalid)?;
    let export = state.exports().get(text(&claims, "sub")).cloned().ok_or_else(invalid)?;
    if export.expires <= now() && !state.has(Fault::NeverExpires) {
        return Err(Box::new(error(410, "SBP_TOKEN_EXPIRED")));
    }
    Ok(export)
}

pub(crate) async fn inspect(
    Shared(state): Shared<Arc<State>>,
    Path(token): Path<String>,
) -> Response {
    let export = match read(&state, &token) {
        Ok(export) => export,
        Err(answer) => return *answer,
    };
    if state.has(Fault::InspectConsumes)
        && let Some(export) = state.exports().get_mut(&export.id)
    {
        export.used = true;
    }
    axum::Json(export.listed()).into_response()
}

pub(crate) async fn list(Shared(state): Shared<Arc<State>>, Path(id): Path<String>) -> Response {
    axum::Json(json!({ "session_id": id, "exports": of(&state, &id) })).into_response()
}

pub(crate) async fn bundle(
    Shared(state): Shared<Arc<State>>,
    Path((_, export)): Path<(String, String)>,
) -> Response {
    match state.exports().get(&export) {
        Some(export) => axum::Json(export.bundle.clone()).into_response(),
        None => error(404, "SBP_NOT_FOUND"),
    }
}
