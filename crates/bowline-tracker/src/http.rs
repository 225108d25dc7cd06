//! The HTTP API: parses requests, asks the registry, signs answers.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bowline_federation::registry::REGISTRY_PATH;
use bowline_net::{Peer, body, peer};
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::RegistryAnswer;
use bowline_sbp::federation::registry::LARGEST_ANNOUNCEMENT;
use bowline_sbp::federation::wire::MANIFEST_PATH;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::error::RequestError;
use crate::shared::Shared;

/// Everything that a tracker serves; `manifest` is its own.
pub(crate) fn router(shared: Arc<Shared>, manifest: Bytes) -> Router {
    let manifest =
        async move || ([(header::CACHE_CONTROL, "public, max-age=300"), JSON], manifest.clone());
    Router::new()
        .route(MANIFEST_PATH, get(manifest))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(Arc::clone(&shared))
        .merge(registry(shared))
        .method_not_allowed_fallback(async || RequestError::WrongMethod)
        .fallback(async || RequestError::Nowhere)
        .layer(middleware::map_response(not_kept))
        .layer(middleware::from_fn(observe))
}

/// The registry alone. Whoever serves it adds [`not_kept`].
pub(crate) fn registry(shared: Arc<Shared>) -> Router {
    Router::new()
        .route(REGISTRY_PATH, post(announce))
        .route(&format!("{REGISTRY_PATH}/{{cid}}"), get(look_up))
        .with_state(shared)
}

const JSON: (header::HeaderName, &str) = (header::CONTENT_TYPE, "application/json");

async fn announce(
    State(shared): State<Arc<Shared>>,
    From(from): From,
    body: Body,
) -> Result<Json<Value>, RequestError> {
    shared.throttles.may_announce(from)?;
    // Each holds a body: their number bounds the memory.
    let _permit = shared.announcing.acquire().await;
    let body = body::read(body, LARGEST_ANNOUNCEMENT, shared.limits.body_timeout).await?;
    let verified = shared.announcers.verify(body, &shared.registry, &shared.throttles).await?;
    let (announcement, known) = verified;
    let (capacity, now) = (shared.capacity(), Timestamp::now().as_second());
    let store = move |registry: &mut crate::registry::Registry| {
        registry.store(&announcement, known, capacity, now)
    };
    let stored = shared.registry.change(store).await?;
    Ok(Json(json!({ "announced": stored.announced, "withdrawn": stored.withdrawn })))
}

/// A signed answer, also if nobody has the bundle: that is an answer, too.
async fn look_up(
    State(shared): State<Arc<Shared>>,
    From(from): From,
    Path(cid): Path<String>,
) -> Result<Response, RequestError> {
    shared.throttles.may_look_up(from)?;
    let cid: Cid = cid.parse().map_err(|_| RequestError::BadCid)?;
    let now = Timestamp::now().as_second();
    let gateways = shared.registry.read(move |registry| registry.holders(cid, now)).await?;
    let tracker_id = shared.id.clone();
    let answer = RegistryAnswer { cid, gateways, issued_at: now, tracker_id };
    Ok(([JSON], answer.sign(&shared.keys.identity())).into_response())
}

async fn healthz() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    let why = match shared.registry.change(|registry| registry.check()).await {
        _ if shared.stop.is_cancelled() => "stopping",
        Ok(()) => return Json(json!({ "status": "ready" })).into_response(),
        Err(_) => "the database cannot be written",
    };
    let why = json!({ "status": "not ready", "why": why });
    (StatusCode::SERVICE_UNAVAILABLE, Json(why)).into_response()
}

/// The network of the request's peer.
struct From(IpAddr);

impl<S: Sync> FromRequestParts<S> for From {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Peer>();
        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Ok(Self(peer.map_or(unknown, |asks| peer::network(asks.address))))
    }
}

/// No cache keeps an answer that does not say otherwise.
pub(crate) async fn not_kept(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Logs each request: its route and the client's address, never its path, headers or body: who looks for
/// which bundle is nobody's business.
async fn observe(request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let from = request.extensions().get::<Peer>().map(|peer| peer.address);
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    let from = from.map(tracing::field::display);
    let ms = begun.elapsed().as_millis() as u64;
    tracing::debug!(%method, route, status, from, ms, "request");
    response
}
