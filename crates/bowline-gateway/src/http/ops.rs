//! For operators: health, readiness, metrics, API documentation.

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use bowline_sbp::access::Action;
use bowline_sbp::error::Code;
use serde_json::{Value, json};

use super::App;
use super::error::ApiError;
use crate::auth::Credentials;
use crate::health::{self, Degraded};

/// Is the process alive?
#[utoipa::path(get, path = "/healthz", tag = "operations", responses((status = 200, body = Object)))]
pub(crate) async fn healthz() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// Can it serve? `503` while starting, stopping, or unable to store. What works worse but works is listed
/// in `degraded`; `replica` is the id of this gateway process.
#[utoipa::path(
    get, path = "/readyz", tag = "operations",
    responses((status = 200, body = Object), (status = 503, body = Object)),
)]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Response {
    let replica = app.sessions.me().0;
    let not_ready = |why: &str| {
        let body = Json(json!({ "status": "not ready", "why": why, "replica": replica }));
        (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
    };
    if !app.ready.load(Ordering::Acquire) {
        return not_ready("starting or stopping");
    }
    if !health::store_writes(&*app.engine.store).await {
        return not_ready("the database cannot be written");
    }
    if !app.sessions.gate.is_open() {
        return not_ready("the lease of this replica cannot be renewed");
    }
    if app.sessions.is_in_trouble() {
        return not_ready("turns wait to be written");
    }
    let degraded: Vec<_> = app.health.degraded().into_iter().map(Degraded::meaning).collect();
    Json(json!({ "status": "ready", "replica": replica, "degraded": degraded })).into_response()
}

/// Prometheus metrics. From the gateway's own machine without a key; others need the scope `admin`.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses((status = 200, body = String)))]
pub(crate) async fn metrics(
    State(app): State<Arc<App>>,
    credentials: Credentials,
) -> Result<impl IntoResponse, ApiError> {
    if !app.engine.access.shows_metrics_to(&credentials) {
        app.engine.allow(&credentials, Action::Operate).await?;
    }
    app.health.measure();
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    Ok((kind, app.metrics.render()))
}

/// Made once: strangers may ask for it as often as they like.
pub(crate) async fn openapi() -> impl IntoResponse {
    static DOCUMENT: LazyLock<Bytes> =
        LazyLock::new(|| super::openapi::document().to_string().into());
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.clone())
}

/// The API documentation page: one file that loads nothing from elsewhere.
pub(crate) async fn docs() -> Html<&'static str> {
    Html(include_str!("docs.html"))
}

pub(crate) async fn nowhere() -> ApiError {
    ApiError::new(Code::NotFound, "there is nothing at this address")
        .detail("GET /docs shows what there is")
}

pub(crate) async fn wrong_method() -> Response {
    let error = ApiError::new(Code::MalformedRequest, "this address does not take that method");
    let mut response = error.into_response();
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response
}
