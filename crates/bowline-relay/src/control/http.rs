//! The HTTP API: parses requests, calls the issuer, renders responses.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use bowline_net::body::{self, BodyError};
use bowline_net::{Peer, peer};
use bowline_sbrp::api::{
    DaemonView, OpenDeviceSession, OpenSession, Register, Registered, Rename, RenewPresence,
    SessionOpened, SetDevices,
};
use bowline_sbrp::revocation;
use bytes::Bytes;
use serde_json::{Value, json};

use super::issuer::{ApiCaller, TokenIssuer};
use super::meters;
use super::request_error::RequestError;

/// How long relays may cache the key set (SBRP-TOKEN: 5 min).
const KEY_SET_AGE: &str = "public, max-age=300";

/// Only the control plane's own routes, so that a relay can serve them at the same address.
pub(super) fn router(issuer: Arc<TokenIssuer>) -> Router {
    let observed = middleware::from_fn_with_state(Arc::clone(&issuer), observe);
    Router::new()
        .route("/api/daemons/register", post(register))
        .route("/api/daemons/{id}/presence", post(renew))
        .route("/api/daemons/{id}/devices", put(set_devices))
        .route("/api/daemons/{id}", delete(revoke).patch(rename))
        .route("/api/daemons", get(daemons))
        .route("/api/sessions", post(open_session))
        .route("/.well-known/jwks.json", get(jwks))
        .route(revocation::PATH, get(revoked))
        .method_not_allowed_fallback(async || RequestError::WrongMethod)
        .with_state(issuer)
        .layer(observed)
}

/// The routes of a control plane without a relay: also health, readiness and metrics.
pub(super) fn served(issuer: Arc<TokenIssuer>) -> Router {
    let page = meters::handle();
    let metrics = async move |State(issuer): State<Arc<TokenIssuer>>, request: Request| {
        let peer = request.extensions().get::<Peer>();
        match issuer.metrics().allows(peer, request.headers()) {
            true => Ok(([(header::CONTENT_TYPE, PROMETHEUS)], page.render())),
            false => Err(RequestError::NoMetrics),
        }
    };
    let observed = middleware::from_fn_with_state(Arc::clone(&issuer), observe);
    let around = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(async || RequestError::Nowhere)
        .with_state(Arc::clone(&issuer))
        .layer(observed);
    router(issuer).merge(around)
}

const PROMETHEUS: &str = "text/plain; version=0.0.4";

async fn register(
    State(issuer): State<Arc<TokenIssuer>>,
    from: From,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Registered>), RequestError> {
    // A key in the header is checked before the body is read, and counts; one in the body cannot be.
    let in_header = match bearer(&headers) {
        Some(shown) => Some(issuer.authenticate(from.0, shown).await?),
        None => None,
    };
    let asked = Register::read(&read(body, &issuer).await?)?;
    let caller = match in_header {
        Some(caller) => caller,
        None => {
            let shown = asked.api_key.as_deref().ok_or(RequestError::NoKey)?;
            issuer.authenticate(from.0, shown).await?
        }
    };
    let (created, registered) = issuer.register(caller, asked).await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(registered)))
}

async fn renew(
    State(issuer): State<Arc<TokenIssuer>>,
    from: From,
    headers: HeaderMap,
    Path(id): Path<String>,
    body: Body,
) -> Result<Json<Registered>, RequestError> {
    let caller = caller(&issuer, from, &headers).await?;
    let asked = RenewPresence::read(&read(body, &issuer).await?)?;
    Ok(Json(issuer.renew(caller, id, asked).await?))
}

async fn rename(
    State(issuer): State<Arc<TokenIssuer>>,
    from: From,
    headers: HeaderMap,
    Path(id): Path<String>,
    body: Body,
) -> Result<StatusCode, RequestError> {
    let caller = caller(&issuer, from, &headers).await?;
    let asked = Rename::read(&read(body, &issuer).await?)?;
    issuer.rename(caller, id, asked.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn set_devices(
    State(issuer): State<Arc<TokenIssuer>>,
    from: From,
    headers: HeaderMap,
    Path(id): Path<String>,
    body: Body,
) -> Result<StatusCode, RequestError> {
    let caller = caller(&issuer, from, &headers).await?;
    let most = issuer.limits().device_set_body;
    let devices = SetDevices::read(&read_up_to(most, body, &issuer).await?)?;
    issuer.set_devices(caller, id, devices).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn revoke(
    State(issuer): State<Arc<TokenIssuer>>,
    from: From,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<StatusCode, RequestError> {
    let caller = caller(&issuer, from, &headers).await?;
    issuer.revoke(caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn daemons(
    State(issuer): State<Arc<TokenIssuer>>,
    from: From,
    headers: HeaderMap,
) -> Result<Json<Vec<DaemonView>>, RequestError> {
    let caller = caller(&issuer, from, &headers).await?;
    Ok(Json(issuer.daemons(caller).await?))
}

async fn open_session(
    State(issuer): State<Arc<TokenIssuer>>,
    from: From,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<SessionOpened>, RequestError> {
    if bearer(&headers).is_some() {
        let caller = caller(&issuer, from, &headers).await?;
        let asked = OpenSession::read(&read(body, &issuer).await?)?;
        return Ok(Json(issuer.open_session(caller, asked.daemon_id).await?));
    }
    // A device's signature is in the body.
    let asked = OpenDeviceSession::read(&read(body, &issuer).await?)?.ok_or(RequestError::NoKey)?;
    let caller = issuer.authenticate_device(from.0, asked).await?;
    Ok(Json(issuer.open_device_session(caller).await?))
}

async fn jwks(State(issuer): State<Arc<TokenIssuer>>) -> Result<impl IntoResponse, RequestError> {
    Ok(([(header::CACHE_CONTROL, KEY_SET_AGE)], Json(issuer.jwks().await?)))
}

async fn revoked(
    State(issuer): State<Arc<TokenIssuer>>,
) -> Result<Json<revocation::RevocationList>, RequestError> {
    Ok(Json(issuer.revoked().await?))
}

async fn healthz() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

async fn readyz(State(issuer): State<Arc<TokenIssuer>>) -> Response {
    match issuer.check().await {
        Ok(()) => Json(json!({ "status": "ready" })).into_response(),
        Err(_) => {
            let why = json!({ "status": "not ready", "why": "the database cannot be written" });
            (StatusCode::SERVICE_UNAVAILABLE, Json(why)).into_response()
        }
    }
}

/// The network of the request's peer; unspecified if the server did not set a [`Peer`].
struct From(IpAddr);

impl<S: Sync> FromRequestParts<S> for From {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Peer>();
        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Ok(Self(peer.map_or(unknown, |asks| peer::network(asks.address))))
    }
}

/// The caller with the API key in the headers. To be asked for before the body is read.
async fn caller(
    issuer: &TokenIssuer,
    From(from): From,
    headers: &HeaderMap,
) -> Result<ApiCaller, RequestError> {
    let shown = bearer(headers).ok_or(RequestError::NoKey)?;
    issuer.authenticate(from, shown).await
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, key) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let key = key.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then_some(key)
}

/// Reads a whole body, limited in size and time.
async fn read(body: Body, issuer: &TokenIssuer) -> Result<Bytes, RequestError> {
    read_up_to(issuer.limits().request_body, body, issuer).await
}

async fn read_up_to(most: usize, body: Body, issuer: &TokenIssuer) -> Result<Bytes, RequestError> {
    let read = body::read(body, most, issuer.limits().body_timeout).await;
    read.map_err(|error| match error {
        BodyError::TooLarge { most } => RequestError::TooLarge(most),
        BodyError::BrokenOff | BodyError::TooSlow => RequestError::BrokenOff,
    })
}

/// Counts and logs each request: its route and the client's address, never its headers or body. Responses are not cacheable
/// unless they say so, because most hold a token.
async fn observe(State(issuer): State<Arc<TokenIssuer>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let from = request.extensions().get::<Peer>().map(|peer| peer.address);
    let mut response = next.run(request).await;
    let status = response.status().as_u16();
    if let Some(Counted(code)) = response.extensions().get() {
        issuer.count_refusal(code);
    }
    let headers = response.headers_mut();
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(axum::http::HeaderValue::from_static("no-store"));
    meters::request(route.as_ref(), status);
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    let from = from.map(tracing::field::display);
    let ms = begun.elapsed().as_millis() as u64;
    tracing::debug!(%method, route, status, from, ms, "request");
    response
}

/// A response extension: the code under which a refusal is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted(pub(super) &'static str);
