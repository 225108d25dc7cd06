//! Which path goes to which handler.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{any, delete, get, patch, post};

use crate::http::guard::{Guard, guard};
use crate::http::{
    App, approvals, completions, mcp, memory, ops, roaming, search, sessions, spec, surfaces,
};
use crate::{attach, meters};

pub(crate) fn router(app: Arc<App>, checks: Guard) -> Router {
    let one_session = Router::new()
        .route("/", get(sessions::show).patch(sessions::rename).delete(sessions::delete))
        .route("/status", patch(sessions::patch_status))
        .route("/cancel", post(sessions::cancel))
        .route("/turns", get(sessions::turns))
        .route("/messages", get(sessions::messages))
        .route("/surfaces", get(surfaces::list).post(surfaces::add))
        .route("/surfaces/{surface_id}", delete(surfaces::forget))
        .route("/approvals", get(approvals::list))
        .route("/approvals/{approval_id}", post(approvals::decide))
        .route("/export", post(roaming::export))
        .route("/exports", get(roaming::exports))
        .route("/exports/{export_id}/bundle", get(roaming::bundle))
        .route("/handoff", post(roaming::handoff))
        .route("/fork", post(roaming::fork))
        .route("/lineage", get(roaming::lineage));
    let memory =
        get(memory::list).put(memory::replace).post(memory::add).delete(memory::forget_all);
    let mut router = Router::new();
    // The roaming part of the protocol uses /v1/sbp/sessions; both paths are the same.
    for base in ["/v1/sessions", "/v1/sbp/sessions"] {
        router = router
            .route(base, post(sessions::create).get(sessions::list))
            .route(&format!("{base}/import"), post(roaming::import))
            .route(&format!("{base}/search"), get(search::search))
            .nest(&format!("{base}/{{id}}"), one_session.clone());
    }
    router
        .route("/v1/chat/completions", post(completions::chat))
        .route("/v1/completions", post(completions::legacy))
        .route("/v1/agents/{agent_id}/memory", memory)
        .route("/v1/agents/{agent_id}/memory/{memory_id}", delete(memory::forget))
        .route("/v1/sbp/token/{token}", get(roaming::inspect))
        .route("/v1/sbp/keys/rotate", post(roaming::rotate))
        .route("/v1/mcp/servers", get(mcp::servers))
        .merge(mcp::routes(&app))
        .route("/v1/models", get(ops::models))
        .route("/v1/sbp/ws/{session_id}", any(attach::upgrade))
        .route("/healthz", get(ops::healthz))
        .route("/readyz", get(ops::readyz))
        .route("/metrics", get(ops::metrics))
        .route("/openapi.json", get(ops::openapi))
        .route("/docs", get(ops::docs))
        .route("/spec/roaming-bundle.schema.json", get(spec::schema))
        .route("/spec/examples/{name}", get(spec::example))
        .route("/", get(ops::docs))
        .fallback(ops::nowhere)
        .method_not_allowed_fallback(ops::wrong_method)
        .with_state(app)
        .layer(middleware::from_fn_with_state(Arc::new(checks), guard))
        .layer(middleware::from_fn(observe))
}

/// Counts and logs each request: its route, never its query or body.
async fn observe(request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    let status = response.status().as_u16();
    let took = begun.elapsed();
    meters::request(route, status, took);
    tracing::debug!(%method, route, status, ms = took.as_millis() as u64, "request");
    response
}
