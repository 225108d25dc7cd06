//! `/v1/peers`: other gateways and trackers, for the operator.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use bowline_sbp::access::Action;
use bowline_sbp::error::Code;
use bowline_sbp::federation::GatewayId;
use bowline_sbp::federation::{ApprovePeer, PeerChecked, PeerList, PeerNamed, PeerView};
use bowline_sbp::gateway_key::{BadFingerprint, KeyFingerprint};

use super::error::ApiError;
use super::federation::federation;
use super::{App, body};
use crate::auth::Credentials;
use crate::engine::Deed;

type Api<T> = Result<T, ApiError>;

/// List the gateways and trackers that are named in the configuration or were met.
#[utoipa::path(
    get, path = "/v1/peers", tag = "federation",
    responses(
        (status = 200, body = PeerList),
        (status = 401, body = bowline_sbp::api::ErrorBody),
        (status = 404, description = "This gateway takes part in no federation", body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    credentials: Credentials,
) -> Api<Json<PeerList>> {
    app.engine.allow(&credentials, Action::Operate).await?;
    Ok(Json(federation(&app)?.known_peers(&*app.engine.store).await?))
}

/// Ask a gateway or tracker now: whether it answers, how fast, and with which key.
#[utoipa::path(
    post, path = "/v1/peers/{id}/check", tag = "federation",
    responses((status = 200, body = PeerChecked), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn check(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    credentials: Credentials,
) -> Api<Json<PeerChecked>> {
    app.engine.allow(&credentials, Action::Operate).await?;
    let federation = federation(&app)?;
    Ok(Json(federation.check_peer(&*app.engine.store, &id_of(&id)?).await?))
}

/// Accept the changed key of a gateway or tracker.
#[utoipa::path(
    post, path = "/v1/peers/{id}/approve", tag = "federation", request_body = ApprovePeer,
    responses(
        (status = 200, body = PeerView),
        (status = 404, body = bowline_sbp::api::ErrorBody),
        (status = 409, description = "It shows no such key", body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn approve(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    credentials: Credentials,
    body: Body,
) -> Api<Json<PeerView>> {
    let engine = &app.engine;
    let by = engine.allow(&credentials, Action::Operate).await?;
    let asked: ApprovePeer = body::json(&body::read(body, &engine.limits).await?)?;
    let fingerprint: KeyFingerprint =
        asked.fingerprint.parse().map_err(|why: BadFingerprint| {
            ApiError::new(Code::InvalidRequest, why.to_string()).param("fingerprint")
        })?;
    let id = id_of(&id)?;
    let peer = federation(&app)?.approve_peer(&*engine.store, &id, fingerprint).await?;
    engine.audit.change(&by, Deed::ApprovePeer, &id).await?;
    Ok(Json(peer))
}

/// What is left of a peer after its key was forgotten.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub(crate) struct PeerForgotten {
    id: String,
    /// Whether the configuration still names it.
    named: PeerNamed,
}

/// Forget the key of a gateway or tracker: the next one that it shows is remembered.
#[utoipa::path(
    delete, path = "/v1/peers/{id}", tag = "federation",
    responses(
        (status = 200, body = PeerForgotten),
        (status = 404, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn forget(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    credentials: Credentials,
) -> Api<Json<PeerForgotten>> {
    let engine = &app.engine;
    let by = engine.allow(&credentials, Action::Operate).await?;
    let id = id_of(&id)?;
    let named = federation(&app)?.forget_peer(&*engine.store, &id).await?;
    engine.audit.change(&by, Deed::ForgetPeer, &id).await?;
    Ok(Json(PeerForgotten { id: id.to_string(), named }))
}

fn id_of(text: &str) -> Api<GatewayId> {
    text.parse().map_err(|_| ApiError::new(Code::NotFound, "that is not the id of a gateway"))
}
