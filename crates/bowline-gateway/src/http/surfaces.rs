//! The named devices of a session (SBP-L4-05).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use bowline_sbp::access::Action;
use bowline_sbp::api::{NewSurface, SurfaceList, SurfaceToken, SurfaceView};
use bowline_sbp::error::Code;
use bowline_sbp::session::{Command, DeviceChange, Refusal, Reply};
use bowline_sbp::surface::SurfaceContext;
use uuid::Uuid;

use super::error::ApiError;
use super::sessions::Named;
use super::{App, body, find};
use crate::auth::{Credentials, Denied};
use crate::engine::Deed;
use crate::session::refused;
use crate::{auth, clock};

/// How long a device's token is valid, in seconds.
const DEFAULT_LIFE: u64 = 30 * 24 * 3600;
const LONGEST_LIFE: u64 = 366 * 24 * 3600;

type Api<T> = Result<T, ApiError>;

/// List the devices that were attached with a name of their own (`surface_id`).
#[utoipa::path(
    get, path = "/v1/sessions/{id}/surfaces", tag = "surfaces",
    responses((status = 200, body = SurfaceList), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Named(id): Named,
    credentials: Credentials,
) -> Api<Json<SurfaceList>> {
    find(&app.engine, id, &credentials, Action::ReadSession).await?;
    let here = app.engine.store.attached(id).await?;
    let here: HashSet<_> =
        here.into_iter().filter_map(|attached| attached.context.surface_id).collect();
    let known = app.engine.store.devices(id).await?;
    let surfaces = known.into_iter().map(|known| SurfaceView {
        attached: here.contains(&known.surface_id),
        context: known.context,
        first_seen: known.first_seen,
        last_seen: known.last_seen,
        token_expires_at: known.token.map(|(_, expires_at)| expires_at),
    });
    Ok(Json(SurfaceList { session_id: id, surfaces: surfaces.collect() }))
}

/// Create a token for one device.
///
/// It can only attach to this session, expires, and can be revoked. It replaces the device's
/// earlier token.
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
    credentials: Credentials,
    body: Body,
) -> Api<(StatusCode, Json<SurfaceToken>)> {
    let (session, identity) = app.engine.allow_in(&credentials, id, Action::ManageDevices).await?;
    // The token knows no agents, models and budgets.
    if identity.is_limited() || identity.has_budgets() {
        return Err(Denied::NotFor("token").into());
    }
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
    let token = auth::new_device_token(id).ok_or_else(|| {
        ApiError::new(Code::Internal, "the operating system gave no random bytes")
    })?;
    let expires_at = clock::now() + Duration::from_secs(seconds);
    // It does not outlive what it was made with.
    let most = app.engine.expires_at(&identity, &session);
    let expires_at = most.map_or(expires_at, |most| most.min(expires_at));
    let hash = auth::hash_token(&token);
    let change = DeviceChange::Token { surface_id: surface_id.clone(), hash, expires_at };
    app.sessions.handle(id).done(Command::Device(change)).await?;
    app.engine.audit.did(&identity, Deed::MakeDeviceToken, id);
    let made = SurfaceToken { session_id: id, surface_id, surface_token: token, expires_at };
    Ok((StatusCode::CREATED, Json(made)))
}

/// Delete a device and what is stored about it.
///
/// If it has a token of its own, the token is revoked, and the device is disconnected.
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
    credentials: Credentials,
) -> Api<StatusCode> {
    let id = body::session_id(&id)?;
    let (_, by) = app.engine.allow_in(&credentials, id, Action::ManageDevices).await?;
    let change = Command::Device(DeviceChange::Forget { surface_id: surface });
    match app.sessions.handle(id).call(change).await? {
        Reply::Refused(Refusal::NoDevice) => {
            Err(ApiError::new(Code::NotFound, "the session has no such device")
                .detail("GET /v1/sessions/{id}/surfaces lists them"))
        }
        Reply::Refused(refusal) => Err(refused(refusal).into()),
        _ => {
            app.engine.audit.did(&by, Deed::ForgetDevice, id);
            Ok(StatusCode::NO_CONTENT)
        }
    }
}
