//! `/v1/devices`: pair, list and revoke devices.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use bowline_sbp::access::Action;
use bowline_sbp::api::{DeviceList, DeviceView, OfferPairing, PairingOffered};
use bowline_sbp::error::Code;
use bowline_sbp::gateway_key::KeyFingerprint;
use bowline_sbp::id::UserId;
use bowline_store::UserKey;

use super::error::ApiError;
use super::user_keys::revoke_key;
use super::users::no_user;
use super::{App, body};
use crate::auth::Credentials;
use crate::engine::OfferRefused;

type Api<T> = Result<T, ApiError>;

/// Make a code that pairs one device with a user.
///
/// It is valid for five minutes, and once. Bring its text to the device.
#[utoipa::path(
    post, path = "/v1/devices/pairing", tag = "users", request_body = OfferPairing,
    responses(
        (status = 201, body = PairingOffered),
        (status = 409, body = bowline_sbp::api::ErrorBody),
        (status = 422, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn offer(
    State(app): State<Arc<App>>,
    credentials: Credentials,
    body: Body,
) -> Api<(StatusCode, Json<PairingOffered>)> {
    let engine = &app.engine;
    let by = engine.allow(&credentials, Action::ManageUsers).await?;
    let asked: OfferPairing = body::json(&body::read(body, &engine.limits).await?)?;
    let text = engine.pairing.text().ok_or_else(|| {
        ApiError::new(Code::SessionConflict, "this gateway is not reachable through a relay now")
            .detail("start it with `bowline up --relay URL`, or wait until its relay is back")
    })?;
    let offer = engine.offer_pairing(Some(&by), asked.user.as_deref(), asked.scopes).await?;
    let offered = PairingOffered { text: text(&offer.code), expires_at: offer.expires_at };
    Ok((StatusCode::CREATED, Json(offered)))
}

/// List paired devices, newest first.
#[utoipa::path(
    get, path = "/v1/devices", tag = "users",
    responses((status = 200, body = DeviceList)),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    credentials: Credentials,
) -> Api<Json<DeviceList>> {
    let engine = &app.engine;
    engine.allow(&credentials, Action::ManageUsers).await?;
    engine.store.keys_used(engine.users.take_used()).await?;
    let users = engine.store.users().await?;
    let name = |id: UserId| users.iter().find(|user| user.id == id).map_or("", |user| &user.name);
    let keys = engine.store.keys(None).await?;
    let paired = keys.into_iter().filter(|key| key.revoked_at.is_none());
    let devices = paired.filter_map(|key| {
        let of = name(key.user);
        view(key, of)
    });
    Ok(Json(DeviceList { devices: devices.collect() }))
}

/// Revoke a device's access. From now on it opens nothing, and surfaces that it attached are
/// disconnected.
#[utoipa::path(
    delete, path = "/v1/devices/{id}", tag = "users",
    responses(
        (status = 204, description = "Revoked"),
        (status = 404, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    credentials: Credentials,
) -> Api<StatusCode> {
    let by = app.engine.allow(&credentials, Action::ManageUsers).await?;
    let unknown = || {
        ApiError::new(Code::NotFound, "there is no such device, or it was revoked before")
            .detail("GET /v1/devices lists them")
    };
    let id = id.parse().map_err(|_| unknown())?;
    let key = app.engine.store.key(id).await?;
    let (device, _) = key.filter(|(key, _)| key.device.is_some()).ok_or_else(unknown)?;
    match revoke_key(&app, &by, device.id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown()),
    }
}

fn view(key: UserKey, user: &str) -> Option<DeviceView> {
    Some(DeviceView {
        fingerprint: KeyFingerprint::of(&key.device?).to_string(),
        id: key.id,
        user: user.to_owned(),
        name: key.name,
        scopes: key.scopes,
        paired_at: key.created_at,
        last_used_at: key.last_used_at,
    })
}

impl From<OfferRefused> for ApiError {
    fn from(refused: OfferRefused) -> Self {
        let said = refused.to_string();
        match refused {
            OfferRefused::NoUser(name) => no_user(&name),
            OfferRefused::Disabled(_) => Self::new(Code::InvalidRequest, said)
                .param("user")
                .detail("enable it first: `bowline users enable`"),
            OfferRefused::Scopes(_) => Self::new(Code::InvalidRequest, said).param("scopes"),
            OfferRefused::TooMany => Self::new(Code::SessionConflict, said)
                .detail("use one of them, or wait until one has expired"),
            OfferRefused::Store(error) => error.into(),
        }
    }
}
