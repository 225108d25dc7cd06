//! What other gateways ask of this server: as a gateway, and as a tracker.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State as Shared};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bowline_conformance::keys::{ANNOUNCEMENT, Identity, MANIFEST, REGISTRY, peek};
use serde_json::{Value, json};

use super::exports::{self, Export, now};
use super::http::error;
use super::{Fault, ID, State, abroad, text};

/// What is remembered of other gateways.
#[derive(Debug, Default)]
pub(crate) struct Federation {
    /// The numbers of federation tokens that were used.
    used: HashSet<String>,
    /// Exports by the reservations that hold them.
    reserved: HashMap<String, String>,
    /// Announced bundles: the gateway that has each.
    holders: HashMap<String, Value>,
    /// Bundles that were fetched.
    pub(crate) kept: HashMap<String, Value>,
}

pub(crate) async fn manifest(Shared(state): Shared<Arc<State>>) -> Response {
    let url = &state.url;
    let mut manifest = json!({
        "sbp_version": "1.2", "gateway_id": ID, "gateway_name": "Small", "role": "both",
        "federation": true, "public_key": state.identity.spki(), "url": url, "issued_at": now(),
        "endpoints": {
            "ws": format!("{}/v1/sbp/ws/{{session_id}}", url.replacen("http", "ws", 1)),
            "export": format!("{url}/v1/sbp/sessions/{{session_id}}/export"),
            "import": format!("{url}/v1/sbp/sessions/import"),
            "bundle": format!("{url}/v1/sbp/bundles/{{bundle_cid}}"),
            "registry": format!("{url}/v1/sbp/registry"),
        },
    });
    if state.has(Fault::OtherKeyType) {
        manifest["public_key"] = json!(P256);
    }
    if state.has(Fault::NoBundleEndpoint) {
        manifest["endpoints"]["bundle"] = Value::Null;
    }
    let manifest = match state.has(Fault::ManifestUnsigned) {
        true => manifest,
        false => state.identity.signed(MANIFEST, manifest),
    };
    axum::Json(manifest).into_response()
}

/// A key of P-256, as base64 of DER SubjectPublicKeyInfo.
const P256: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpZP40Li/hp/m47n\
                    60p8D54WK84zV2sxXs7LtkBoN79R9Q==";

/// Whether the request shows a good federation token.
async fn is_gateway(state: &State, headers: &HeaderMap) -> bool {
    let bearer = headers.get("authorization").and_then(|value| value.to_str().ok());
    let Some(token) = bearer.and_then(|value| value.strip_prefix("Bearer ")) else {
        return state.has(Fault::NoFederationToken);
    };
    let Some((_, claims)) = peek(token) else { return false };
    let key = abroad::key_of(state, text(&claims, "iss")).await;
    let signed = key.is_some_and(|key| key.claims(token).is_some());
    let (iat, exp) = (claims["iat"].as_u64().unwrap_or(0), claims["exp"].as_u64().unwrap_or(0));
    if state.has(Fault::OtherTokenForm) {
        return false;
    }
    let is_good = signed && claims["aud"] == ID && exp > now() && exp <= iat + 300;
    let is_new = state.federation.lock().unwrap().used.insert(text(&claims, "jti").to_owned());
    (is_good || state.has(Fault::AnyFederationToken))
        && (is_new || state.has(Fault::FederationTokensAgain))
}

pub(crate) async fn bundle(
    Shared(state): Shared<Arc<State>>,
    Path(cid): Path<String>,
    headers: HeaderMap,
) -> Response {
    if !is_gateway(&state, &headers).await {
        return error(401, "SBP_UNAUTHORIZED");
    }
    let found = state.exports().values().find(|export| export.cid == cid).cloned();
    if let Some(export) = found {
        let mut bundle = export.bundle;
        if state.has(Fault::OtherBundleGiven) {
            bundle["label"] = json!("another");
        }
        return axum::Json(bundle).into_response();
    }
    let holder = state.federation.lock().unwrap().holders.get(&cid).cloned();
    if let Some(holder) = holder.filter(|_| state.has(Fault::TrackerProxies)) {
        let url = format!("{}/v1/sbp/bundles/{cid}", text(&holder, "url"));
        let answer = state.http.get(url).send().await.unwrap();
        return answer.text().await.unwrap().into_response();
    }
    match state.has(Fault::UnknownBundleFails) {
        true => error(500, "SBP_INTERNAL"),
        false => error(404, "SBP_NOT_FOUND"),
    }
}

pub(crate) async fn reserve(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if state.has(Fault::NoReservations) {
        return error(404, "SBP_NOT_FOUND");
    }
    if !is_gateway(&state, &headers).await {
        return error(401, "SBP_UNAUTHORIZED");
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match exports::read(&state, text(&body, "roaming_token")) {
        Err(answer) => *answer,
        Ok(export) => {
            let id = text(&body, "reservation_id").to_owned();
            state.federation.lock().unwrap().reserved.insert(id.clone(), export.id);
            let until = "2099-01-01T00:00:00Z";
            let reserved = json!({ "reservation_id": id, "cid": export.cid, "expires_at": until });
            axum::Json(reserved).into_response()
        }
    }
}

pub(crate) async fn confirm(
    Shared(state): Shared<Arc<State>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    if !is_gateway(&state, &headers).await {
        return error(401, "SBP_UNAUTHORIZED");
    }
    let Some(export) = state.federation.lock().unwrap().reserved.get(&id).cloned() else {
        return error(404, "SBP_NOT_FOUND");
    };
    let mut exports = state.exports();
    let export = exports.get_mut(&export).expect("it was reserved");
    export.used = true;
    if let Some(session) = state.sessions().get_mut(&export.session) {
        session.next = Some("elsewhere".into());
        session.resumed = false;
    }
    axum::Json(json!({ "reservation_id": id })).into_response()
}

pub(crate) async fn register(Shared(state): Shared<Arc<State>>, body: Bytes) -> Response {
    let said = String::from_utf8_lossy(&body).into_owned();
    let json: Value = serde_json::from_str(&said).unwrap_or_default();
    let key = abroad::key_of(&state, text(&json, "gateway_id")).await;
    if !key.is_some_and(|key| key.signed(ANNOUNCEMENT, &said)) {
        return error(401, "SBP_UNAUTHORIZED");
    }
    for announced in json["cids"].as_array().into_iter().flatten() {
        let holder = json!({
            "gateway_id": json["gateway_id"], "url": json["url"],
            "expires_at": announced["expires_at"],
        });
        let cid = text(announced, "cid").to_owned();
        state.federation.lock().unwrap().holders.insert(cid, holder);
    }
    axum::Json(json!({})).into_response()
}

pub(crate) async fn registered(
    Shared(state): Shared<Arc<State>>,
    Path(cid): Path<String>,
) -> Response {
    let holder = state.federation.lock().unwrap().holders.get(&cid).cloned();
    let gateways: Vec<Value> = holder.into_iter().collect();
    let answer = json!({ "cid": cid, "gateways": gateways, "issued_at": now(), "tracker_id": ID });
    let answer = match state.has(Fault::RegistryUnsigned) {
        true => answer,
        false => state.identity.signed(REGISTRY, answer),
    };
    axum::Json(answer).into_response()
}

/// Tells the suite's tracker of an export.
pub(crate) fn announce(state: &Arc<State>, export: &Export) {
    let (state, cid, expires) = (Arc::clone(state), export.cid.clone(), export.expires);
    tokio::spawn(async move {
        let announced = json!({
            "gateway_id": ID, "url": state.url, "withdraw": [], "issued_at": now(),
            "cids": [{ "cid": cid, "expires_at": expires }],
        });
        let forger = Identity::from_seed(&[9; 32]);
        let signer = if state.has(Fault::AnnouncementForged) { &forger } else { &state.identity };
        let url = format!("{}/v1/sbp/registry", state.peers["suite"]);
        let announced = signer.signed(ANNOUNCEMENT, announced);
        // A tracker that is not there learns nothing.
        let _ = state.http.post(url).json(&announced).send().await;
    });
}
