//! Which path goes to which handler.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{any, delete, get, patch, post, put};
use bowline_net::Peer;

use crate::config::STATEFUL_PATHS;
use crate::http::guard::{Guard, guard};
use crate::http::{
    App, approvals, audit, blobs, certify, completions, devices, federation, forward, import, mcp,
    memory, models, ops, peers, replicas, roaming, search, session_token, sessions, shares, spec,
    stateful, surfaces, usage, user_keys, users,
};
use crate::{attach, meters};

pub(crate) fn router(app: Arc<App>, checks: Guard) -> Router {
    let one_session = Router::new()
        .route("/", get(sessions::show).patch(sessions::rename).delete(sessions::delete))
        .route("/status", patch(sessions::patch_status))
        .route("/cancel", post(sessions::cancel))
        .route("/turns", get(sessions::turns))
        .route("/messages", get(sessions::messages))
        .route("/blobs/{hash}", get(blobs::show))
        .route("/surfaces", get(surfaces::list).post(surfaces::add))
        .route("/surfaces/{surface_id}", delete(surfaces::forget))
        .route("/approvals", get(approvals::list))
        .route("/approvals/{approval_id}", post(approvals::decide))
        .route("/export", post(roaming::export))
        .route("/exports", get(roaming::exports))
        .route("/exports/{export_id}/bundle", get(roaming::bundle))
        .route("/handoff", post(roaming::handoff))
        .route("/fork", post(roaming::fork))
        .route("/lineage", get(roaming::lineage))
        .route("/token", post(session_token::rotate).delete(session_token::revoke))
        .route("/shares", get(shares::list))
        .route("/shares/{user}", put(shares::share).delete(shares::unshare));
    let memory =
        get(memory::list).put(memory::replace).post(memory::add).delete(memory::forget_all);
    let mut router = Router::new();
    // The roaming part of the protocol uses /v1/sbp/sessions; both paths are the same.
    for base in ["/v1/sessions", "/v1/sbp/sessions"] {
        router = router
            .route(base, post(sessions::create).get(sessions::list))
            .route(&format!("{base}/import"), post(import::import))
            .route(&format!("{base}/search"), get(search::search))
            .nest(&format!("{base}/{{id}}"), one_session.clone());
    }
    if app.certify {
        router = router.route(certify::TETHER, post(certify::tether));
    }
    if let Some(registry) = app.engine.federation.as_ref().and_then(|one| one.registry.as_ref()) {
        router = router.merge(registry.routes());
    }
    // Without TRACE: a server that echoes the request would show its key.
    let stateful = get(stateful::pass)
        .post(stateful::pass)
        .put(stateful::pass)
        .patch(stateful::pass)
        .delete(stateful::pass);
    for path in STATEFUL_PATHS {
        router = router
            .route(path, stateful.clone())
            .route(&format!("{path}/"), stateful.clone())
            .route(&format!("{path}/{{*rest}}"), stateful.clone());
    }
    router
        .route("/v1/chat/completions", post(completions::chat))
        .route("/v1/completions", post(completions::legacy))
        .route("/v1/agents/{agent_id}/memory", memory)
        .route("/v1/agents/{agent_id}/memory/{memory_id}", delete(memory::forget))
        .route("/v1/sbp/token/{token}", get(roaming::inspect))
        .route("/v1/sbp/identity", get(roaming::identity))
        .route("/.well-known/sbp", get(federation::manifest))
        .route("/v1/sbp/bundles/{cid}", get(federation::bundle))
        .route("/v1/sbp/federation/attach", post(federation::attach))
        .route("/v1/sbp/federation/reservations", post(federation::reserve))
        .route("/v1/sbp/federation/reservations/{id}", delete(federation::release))
        .route("/v1/sbp/federation/reservations/{id}/confirm", post(federation::confirm))
        .route("/v1/sbp/federation/lineage/{id}", get(federation::lineage))
        .route("/v1/sbp/keys/rotate", post(roaming::rotate))
        .route("/v1/users", get(users::list).post(users::add))
        .route("/v1/users/{name}", patch(users::patch))
        .route("/v1/keys", get(user_keys::list).post(user_keys::make))
        .route("/v1/keys/{id}", delete(user_keys::revoke))
        .route("/v1/devices", get(devices::list))
        .route("/v1/devices/pairing", post(devices::offer))
        .route("/v1/devices/{id}", delete(devices::revoke))
        .route("/v1/replicas", get(replicas::list))
        .route("/v1/peers", get(peers::list))
        .route("/v1/peers/{id}", delete(peers::forget))
        .route("/v1/peers/{id}/check", post(peers::check))
        .route("/v1/peers/{id}/approve", post(peers::approve))
        .route("/v1/usage", get(usage::show))
        .route("/v1/audit", get(audit::show))
        .route("/v1/mcp/servers", get(mcp::servers))
        .route("/v1/mcp/servers/{server}/accept", post(mcp::accept))
        .route("/v1/mcp/servers/{server}/prompts", get(mcp::library::prompts))
        .route("/v1/mcp/servers/{server}/prompts/{prompt}", post(mcp::library::prompt))
        .route("/v1/mcp/servers/{server}/resources", get(mcp::library::resources))
        .route("/v1/mcp/servers/{server}/resources/read", get(mcp::library::resource))
        .route("/v1/mcp/servers/{server}/resources/templates", get(mcp::library::templates))
        .merge(mcp::routes(&app))
        .route("/v1/embeddings", post(forward::embeddings))
        .route("/v1/moderations", post(forward::moderations))
        .route("/v1/images/generations", post(forward::images_generations))
        .route("/v1/images/edits", post(forward::images_edits))
        .route("/v1/images/variations", post(forward::images_variations))
        .route("/v1/audio/speech", post(forward::audio_speech))
        .route("/v1/audio/transcriptions", post(forward::audio_transcriptions))
        .route("/v1/audio/translations", post(forward::audio_translations))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*model}", get(models::show))
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
        .with_state(Arc::clone(&app))
        .layer(middleware::from_fn_with_state(app, audit::tally))
        .layer(middleware::from_fn_with_state(Arc::new(checks), guard))
        .layer(middleware::from_fn(observe))
}

/// Counts and logs each request: its route and the client's address or device, never its query or body.
async fn observe(request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let from = request.extensions().get::<Peer>().map(Peer::name);
    let response = next.run(request).await;
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    let status = response.status().as_u16();
    let took = begun.elapsed();
    meters::request(route, status, took);
    let from = from.map(tracing::field::display);
    tracing::debug!(%method, route, status, from, ms = took.as_millis() as u64, "request");
    response
}
