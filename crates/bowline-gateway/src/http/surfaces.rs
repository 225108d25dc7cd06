//! The devices that a session knows (SBP-L4-05).

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use bowline_sbp::api::{NewSurface, SurfaceList, SurfaceToken, SurfaceView};
use bowline_sbp::error::Code;
use bowline_sbp::id::SessionId;
use bowline_sbp::surface::SurfaceContext;
use bowline_store::{Forgotten, NewDeviceToken};
use uuid::Uuid;

use super::error::ApiError;
use super::sessions::Named;
use super::{App, body, find};
use crate::{auth, clock};

/// How long a device's token is good, in seconds.
const DEFAULT_LIFE: u64 = 30 * 24 * 3600;
const LONGEST_LIFE: u64 = 366 * 24 * 3600;

type Api<T> = Result<T, ApiError>;

/// Devices that were attached under a name of their own (`surface_id`).
#[utoipa::path(
    get, path = "/v1/sessions/{id}/surfaces", tag = "surfaces",
    responses((status = 200, body = SurfaceList), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Named(id): Named,
    headers: HeaderMap,
) -> Api<Json<SurfaceList>> {
    let session = find(&app.engine, id, &body::credentials(&headers)).await?;
    let here = session.surface.and_then(|surface| surface.surface_id);
    let known = app.engine.store.surfaces(id).await?;
    let surfaces = known.into_iter().map(|known| SurfaceView {
        attached: here.is_some() && known.context.surface_id == here,
        context: known.context,
        first_seen: known.first_seen,
        last_seen: known.last_seen,
        token_expires_at: known.token_expires_at,
    });
    Ok(Json(SurfaceList { session_id: id, surfaces: surfaces.collect() }))
}

/// Give a device a token of its own: it can attach and nothing else, ends by itself, and can be
/// taken back. The device's earlier one is good no more.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/surfaces", tag = "surfaces",
    request_body = NewSurface,
    responses(
        (status = 201, body = SurfaceToken),
        (status = 404, body = bowline_sbp::api::ErrorBody),
        (status = 422, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn add(
    State(app): State<Arc<App>>,
    Named(id): Named,
    headers: HeaderMap,
    body: Body,
) -> Api<(StatusCode, Json<SurfaceToken>)> {
    find(&app.engine, id, &body::credentials(&headers)).await?;
    let bytes = body::read(body, &app.engine.limits).await?;
    let NewSurface { surface_id, expires_in } = match bytes.is_empty() {
        true => NewSurface::default(),
        false => body::json(&bytes)?,
    };
    let wrong = |what: &str| ApiError::new(Code::InvalidRequest, what);
    let surface_id = surface_id.unwrap_or_else(|| format!("device-{}", Uuid::new_v4().simple()));
    if !SurfaceContext::is_name(&surface_id) {
        return Err(wrong("`surface_id` is a name of 1 to 256 bytes"));
    }
    let seconds = expires_in.unwrap_or(DEFAULT_LIFE);
    if !(1..=LONGEST_LIFE).contains(&seconds) {
        return Err(wrong("`expires_in` is between one second and a year, in seconds"));
    }
    let token = auth::new_device_token(id)
        .ok_or_else(|| ApiError::new(Code::Internal, "the system gives no randomness"))?;
    let at = clock::now();
    let expires_at = at + Duration::from_secs(seconds);
    let hash = auth::hash_token(&token);
    let new =
        NewDeviceToken { session_id: id, surface_id: surface_id.clone(), hash, at, expires_at };
    if let Forgotten::CutOff { epoch } = app.engine.store.add_device_token(new).await? {
        revoked(&app, id, epoch);
    }
    let made = SurfaceToken { session_id: id, surface_id, surface_token: token, expires_at };
    Ok((StatusCode::CREATED, Json(made)))
}

/// Tells an attached device that it may not stay.
fn revoked(app: &App, id: SessionId, epoch: u64) {
    if let Some(channel) = app.engine.hub.existing(id) {
        channel.revoked(epoch);
    }
}

/// Forget a device and what it said of itself. One that is attached with a token of its own is cut
/// off, and its token opens nothing any more.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}/surfaces/{surface_id}", tag = "surfaces",
    responses(
        (status = 204, description = "Forgotten"),
        (status = 404, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn forget(
    State(app): State<Arc<App>>,
    Path((id, surface)): Path<(String, String)>,
    headers: HeaderMap,
) -> Api<StatusCode> {
    let id = body::session_id(&id)?;
    find(&app.engine, id, &body::credentials(&headers)).await?;
    match app.engine.store.forget_surface(id, surface, clock::now()).await? {
        Forgotten::Gone => return Ok(StatusCode::NO_CONTENT),
        Forgotten::CutOff { epoch } => {
            revoked(&app, id, epoch);
            return Ok(StatusCode::NO_CONTENT);
        }
        Forgotten::Unknown => {}
    }
    Err(ApiError::new(Code::NotFound, "the session knows no such device")
        .detail("GET /v1/sessions/{id}/surfaces lists those it knows"))
}
