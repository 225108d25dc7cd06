//! The relay's HTTP requests, up to the WebSocket upgrade.
//!
//! A few fixed paths, matched by hand. A token is verified before the upgrade. The query of a
//! request is never logged: it may hold the token.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use bowline_net::Peer;
use bowline_sbrp::api::{DaemonStatus, RelayStatus};
use bowline_sbrp::token::{Admission, DaemonPass};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::Shared;
use super::keys::AdmitError;
use super::membership::{self, Membership};
use super::meters::reason;
use super::ws::upgrade::{self, NoUpgrade};
use crate::metrics_access::METRICS_REFUSED;

pub(crate) type HttpResponse = Response<Full<Bytes>>;

/// Answers one request.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    peer: Peer,
    request: Request<Incoming>,
) -> HttpResponse {
    let known = matches!(
        request.uri().path(),
        "/" | "/relay" | "/status" | "/healthz" | "/readyz" | "/metrics"
    );
    if known && request.method() != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "only GET");
    }
    match request.uri().path() {
        "/" | "/relay" => connect(shared, peer, request).await,
        "/status" => status(&shared, &request).await,
        "/healthz" => json_response(
            StatusCode::OK,
            &json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }),
        ),
        "/readyz" => match shared.why_not_ready() {
            None => json_response(StatusCode::OK, &json!({ "status": "ready" })),
            Some(why) => json_response(
                StatusCode::SERVICE_UNAVAILABLE,
                &json!({ "status": "not ready", "why": why }),
            ),
        },
        "/metrics" if !shared.config.metrics.allows(Some(&peer), request.headers()) => {
            refuse(StatusCode::UNAUTHORIZED, "unauthorized", METRICS_REFUSED)
        }
        "/metrics" => {
            let page = shared.meters.render(&shared.daemons.gauges());
            body(StatusCode::OK, "text/plain; version=0.0.4", page.into())
        }
        _ => match &shared.local_control {
            Some(local_control) => local_control.answer(request.map(Body::new), Some(peer)).await,
            None => refuse(StatusCode::NOT_FOUND, "not_found", "a relay is at /relay"),
        },
    }
}

/// Verifies the token, answers the upgrade, and starts the connection.
async fn connect(shared: Arc<Shared>, peer: Peer, mut request: Request<Incoming>) -> HttpResponse {
    let token = bearer(&request).or_else(|| in_query(&request));
    // Before anything is counted: those who share an address with a guesser are not turned away for it.
    let admission = match judge(&shared, token).await {
        Ok(admission) => admission,
        Err(refusal) => {
            let is_told = shared.connection_rate.refused(peer.address, Instant::now());
            return if is_told { refusal } else { turned_away(&shared) };
        }
    };
    if !shared.connection_rate.admit(peer.address, Instant::now()) {
        return turned_away(&shared);
    }
    if let Admission::Daemon(pass) = &admission
        && let Some(refusal) = elsewhere(&shared, pass)
    {
        return refusal;
    }
    let accept = match upgrade::accept(request.headers()) {
        Ok(accept) => accept,
        Err(NoUpgrade::NotAsked) => {
            let why = "this is a WebSocket endpoint, version 13";
            let mut answer = refuse(StatusCode::UPGRADE_REQUIRED, "upgrade_required", why);
            answer.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
            answer.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            return answer;
        }
        Err(NoUpgrade::Key) => {
            let why = "Sec-WebSocket-Key is not sixteen bytes in base64";
            return refuse(StatusCode::BAD_REQUEST, "invalid_request", why);
        }
    };
    let Ok(accept) = HeaderValue::try_from(accept) else {
        return refuse(StatusCode::BAD_REQUEST, "invalid_request", "unusable key");
    };
    let upgraded = hyper::upgrade::on(&mut request);
    let tasks = shared.connections.clone();
    let membership = Membership::join(&shared, admission);
    tasks.spawn(membership::serve(shared, upgraded, membership, peer.place));
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    answer
}

/// The refusal of a daemon that belongs elsewhere, or whose place is taken by a later presence.
fn elsewhere(shared: &Shared, pass: &DaemonPass) -> Option<HttpResponse> {
    if shared.revocations.is_draining() {
        shared.meters.turned_away();
        let why = "this relay takes no more daemons; ask the control plane for another";
        return Some(refuse(StatusCode::SERVICE_UNAVAILABLE, "draining", why));
    }
    if shared.epochs.admit(pass, wall()) {
        return None;
    }
    shared.meters.rejected("replaced");
    let why = "a later presence of this daemon was here; its process has to step aside";
    Some(refuse(StatusCode::CONFLICT, "replaced", why))
}

/// Seconds since 1970.
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn turned_away(shared: &Shared) -> HttpResponse {
    shared.meters.turned_away();
    let why = "too many new connections; come again in a moment";
    let mut answer = refuse(StatusCode::TOO_MANY_REQUESTS, "rate_limited", why);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// Reports whether the token's daemon is connected.
async fn status(shared: &Shared, request: &Request<Incoming>) -> HttpResponse {
    let daemon = match judge(shared, bearer(request)).await {
        Ok(Admission::Daemon(pass)) => pass.daemon,
        Ok(Admission::Client(pass)) => pass.daemon,
        Err(refusal) => return refusal,
    };
    let daemon = match shared.daemons.is_online(&daemon) {
        true => DaemonStatus::Online,
        false => DaemonStatus::Offline,
    };
    json_response(StatusCode::OK, &RelayStatus { daemon })
}

async fn judge(shared: &Shared, token: Option<String>) -> Result<Admission, HttpResponse> {
    let reject = |reason, why: &str| {
        shared.meters.rejected(reason);
        shared.refusals.refused(reason, why);
    };
    let Some(token) = token else {
        reject("missing", "they show no token");
        let why = "a token is needed: ?token=… or Authorization: Bearer …";
        return Err(refuse(StatusCode::UNAUTHORIZED, "unauthorized", why));
    };
    match shared.keys.admit(&token, wall()).await {
        Ok(admission) if shared.revocations.refuse(&admission) => {
            let why = match admission {
                Admission::Daemon(_) => "the daemon, or its owner's key, was revoked",
                Admission::Client(_) => "the user's key was revoked after the token was issued",
            };
            reject("revoked", why);
            Err(refused("revoked", StatusCode::UNAUTHORIZED, why))
        }
        Ok(admission) => Ok(admission),
        Err(AdmitError::Token(error)) => {
            reject(reason(error), &error.to_string());
            let status = match error.status() {
                403 => StatusCode::FORBIDDEN,
                _ => StatusCode::UNAUTHORIZED,
            };
            Err(refused(reason(error), status, &error.to_string()))
        }
        Err(AdmitError::NoKeys) => {
            let why = "the issuer's keys are not available; come again later";
            reject("no_keys", why);
            Err(refuse(StatusCode::SERVICE_UNAVAILABLE, "keys_unavailable", why))
        }
    }
}

/// The response to a token that is not accepted.
fn refused(reason: &str, status: StatusCode, message: &str) -> HttpResponse {
    let code = match status {
        StatusCode::FORBIDDEN => "forbidden",
        _ => "unauthorized",
    };
    let detail = json!({ "code": code, "reason": reason, "message": message });
    json_response(status, &json!({ "error": detail }))
}

/// The token in the query: browsers cannot set headers on a WebSocket request.
fn in_query(request: &Request<Incoming>) -> Option<String> {
    let query = request.uri().query()?;
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == "token").map(|(_, token)| token.into_owned())
}

fn bearer(request: &Request<Incoming>) -> Option<String> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

fn refuse(status: StatusCode, code: &str, message: &str) -> HttpResponse {
    let error: Value = json!({ "error": { "code": code, "message": message } });
    json_response(status, &error)
}

fn json_response(status: StatusCode, value: &impl serde::Serialize) -> HttpResponse {
    let text = serde_json::to_vec(value).unwrap_or_default();
    body(status, "application/json", text.into())
}

fn body(status: StatusCode, kind: &'static str, bytes: Bytes) -> HttpResponse {
    let mut answer = Response::new(Full::new(bytes));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
