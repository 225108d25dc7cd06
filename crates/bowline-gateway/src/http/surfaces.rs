//! The devices that a session knows (SBP-L4-05).

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use bowline_sbp::api::{SurfaceList, SurfaceView};
use bowline_sbp::error::Code;

use super::error::ApiError;
use super::sessions::Named;
use super::{App, body, find};

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
    });
    Ok(Json(SurfaceList { session_id: id, surfaces: surfaces.collect() }))
}

/// Forget a device and what it said of itself.
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
    if app.engine.store.forget_surface(id, surface).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(ApiError::new(Code::NotFound, "the session knows no such device")
        .detail("GET /v1/sessions/{id}/surfaces lists those it knows"))
}
