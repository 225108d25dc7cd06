//! What other gateways ask: the manifest, bundles and reservations (SBP-L6).
//!
//! Without federation none of these addresses exists.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bowline_net::{Peer, PeerName};
use bowline_sbp::api::ErrorDetail;
use bowline_sbp::cid::Cid;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::reservation::{Refusal, ReservationState};
use bowline_sbp::federation::wire::{
    AttachGranted, AttachRequest, CameFrom, Confirmation, Confirmed, MOST_HOPS, RESERVATION_HEADER,
    ROAMING_TOKEN_HEADER, RefusedBody,
};
use bowline_sbp::federation::{
    Asked, FederationAction, ReservationId, ReservationRequest, Reserved,
};

use bowline_sbp::session::Command;
use bowline_store::Error as StoreError;
use jiff::{SignedDuration, Timestamp};

use super::error::ApiError;
use super::{App, body};
use crate::clock;
use crate::engine::{NotReserved, ShownForBundle, end_stale_actor, given_nothing};
use crate::federation::{AskingGateway, Federation};
use crate::session::SessionHandle;

type Api<T> = Result<T, ApiError>;

/// How long a session is held for a gateway that waits until it rests. That one asks several times a second.
const RESTING: SignedDuration = SignedDuration::from_secs(5);

/// This gateway's manifest: who it is, and the key with which it signs. Signed; open to everyone.
#[utoipa::path(
    get, path = "/.well-known/sbp", tag = "federation",
    responses(
        (status = 200, body = Object),
        (status = 404, description = "This gateway takes part in no federation", body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn manifest(State(app): State<Arc<App>>) -> Api<Response> {
    let text = federation(&app)?.manifest();
    let headers =
        [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "max-age=60")];
    Ok((headers, text.to_string()).into_response())
}

/// A bundle, for another gateway (SBP-L6-02).
///
/// Takes a federation token of the gateway that asks, for this bundle; and, unless the configuration or the export
/// names that gateway, the bundle's roaming token in `SBP-Roaming-Token`.
#[utoipa::path(
    get, path = "/v1/sbp/bundles/{cid}", tag = "federation",
    responses(
        (status = 200, body = Object),
        (status = 401, description = "No federation token for this bundle", body = bowline_sbp::api::ErrorBody),
        (status = 403, description = "This gateway gives that one nothing", body = bowline_sbp::api::ErrorBody),
        (status = 404, body = bowline_sbp::api::ErrorBody),
        (status = 429, description = "Too many bundles are given at once", body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn bundle(
    State(app): State<Arc<App>>,
    cid: Result<Path<String>, PathRejection>,
    asks: Asks,
) -> Api<Response> {
    let federation = federation(&app)?;
    let text = cid.map(|Path(cid)| cid).unwrap_or_default();
    let peer = peer(&app, federation, &asks, FederationAction::Bundle, &text).await?;
    let no_cid = |_| ApiError::new(Code::NotFound, "that is not a content id");
    let cid: Cid = text.parse().map_err(no_cid)?;
    let shown = |name| asks.headers.get(name).and_then(|value| value.to_str().ok());
    let shown = ShownForBundle {
        roaming_token: shown(ROAMING_TOKEN_HEADER).map(str::to_owned),
        reservation: shown(RESERVATION_HEADER).and_then(|id| id.parse().ok()).map(ReservationId),
    };
    let bundle = app.engine.give_bundle(federation, &peer, cid, shown).await?;
    let headers = [(header::CONTENT_TYPE, "application/json")];
    Ok((headers, Body::new(bundle)).into_response())
}

/// Reserve the session of a roaming token, or renew the reservation.
#[utoipa::path(
    post, path = "/v1/sbp/federation/reservations", tag = "federation",
    request_body = ReservationRequest,
    responses(
        (status = 200, body = Reserved),
        (status = 401, body = bowline_sbp::api::ErrorBody),
        (status = 403, body = bowline_sbp::api::ErrorBody),
        (status = 409, description = "Not now, or not any more: `refused` says why", body = RefusedBody),
        (status = 410, description = "The token or the session was used", body = RefusedBody),
        (status = 429, description = "Too many bundles are packed at once", body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn reserve(State(app): State<Arc<App>>, asks: Asks, body: Body) -> Api<Response> {
    let federation = federation(&app)?;
    let asked = body::read_small(body, &app.engine.limits).await?;
    let asked: ReservationRequest = body::json(&asked)?;
    let subject = asked.reservation_id.to_string();
    let peer = peer(&app, federation, &asks, FederationAction::Reserve, &subject).await?;
    let id = asked.reservation_id;
    if !federation.may_reserve(&peer.iss) {
        return Err(given_nothing().into());
    }
    let (session, is_new) = match app.engine.session_to_hold(&peer, &asked).await {
        Ok((session, is_new)) => (app.sessions.handle(session), is_new),
        Err(refused) => return answered(Err::<(), _>(refused)),
    };
    if is_new {
        // Before the store is asked: what is accepted between the two would make the confirmation refuse.
        hold(&session, id, clock::now().checked_add(RESTING)).await;
    }
    let reserved = app.engine.reserve(federation, &peer, asked).await;
    match &reserved {
        Ok(reserved) => hold(&session, id, Ok(reserved.expires_at)).await,
        // The peer asks again at once, and the hold goes on.
        Err(NotReserved::Refused(Refusal::Working)) => {
            if federation.waiting.asks(id, Instant::now()) {
                // A running turn ends first, but not for ever: it is interrupted.
                let cancel = Command::Cancel { turns: Vec::new(), running: true };
                tokio::spawn(async move { session.call(cancel).await });
            }
        }
        Err(_) => end_hold(&session, id).await,
    }
    answered(reserved.map(Json))
}

/// The session takes no new turns until then, for that reservation. If its owner does not answer, it takes some, and
/// the confirmation is refused then.
async fn hold(session: &SessionHandle, id: ReservationId, until: Result<Timestamp, jiff::Error>) {
    let Ok(until) = until else { return };
    if let Err(failure) = session.done(Command::Hold { by: id.0, until }).await {
        tracing::debug!(code = failure.code.as_str(), "a session that is reserved is not held");
    }
}

async fn end_hold(session: &SessionHandle, id: ReservationId) {
    let _ = session.done(Command::EndHold { by: id.0 }).await;
}

/// An attach token for a surface of a session that came from the gateway that asks.
#[utoipa::path(
    post, path = "/v1/sbp/federation/attach", tag = "federation",
    request_body = AttachRequest,
    responses(
        (status = 200, body = AttachGranted),
        (status = 401, body = bowline_sbp::api::ErrorBody),
        (status = 403, description = "The session came too long ago", body = bowline_sbp::api::ErrorBody),
        (status = 404, description = "No session came from there by that reservation", body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn attach(
    State(app): State<Arc<App>>,
    asks: Asks,
    body: Body,
) -> Api<Json<AttachGranted>> {
    let federation = federation(&app)?;
    let asked = body::read_small(body, &app.engine.limits).await?;
    let AttachRequest { reservation_id: id } = body::json(&asked)?;
    let subject = id.to_string();
    let peer = peer(&app, federation, &asks, FederationAction::Attach, &subject).await?;
    Ok(Json(app.engine.grant_attach(federation, &peer, id).await?))
}

/// Confirm a reservation: the session is stored at the gateway that asks, and is that gateway's from now on.
#[utoipa::path(
    post, path = "/v1/sbp/federation/reservations/{id}/confirm", tag = "federation",
    request_body = Confirmation,
    responses(
        (status = 200, body = Confirmed),
        (status = 401, body = bowline_sbp::api::ErrorBody),
        (status = 404, description = "There is no such reservation", body = RefusedBody),
        (status = 409, description = "Not any more: `refused` says why", body = RefusedBody),
        (status = 410, description = "The token was used", body = RefusedBody),
    ),
)]
pub(crate) async fn confirm(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    asks: Asks,
    body: Body,
) -> Api<Response> {
    let federation = federation(&app)?;
    let id = reservation_id(id)?;
    let subject = id.to_string();
    let peer = peer(&app, federation, &asks, FederationAction::Confirm, &subject).await?;
    let asked = body::read(body, &app.engine.limits).await?;
    let asked: Confirmation = body::json(&asked)?;
    let there = asked.session_id;
    let confirmed = app.engine.confirm_reservation(federation, &peer, id, there).await;
    let kept = match confirmed {
        Ok(kept) => kept,
        Err(refused) => {
            // Another peer's, or one that may still be confirmed, holds the session as before.
            if let Some(kept) = app.engine.store.reservation(id).await?
                && kept.reservation.peer == peer.iss
                && kept.reservation.state == ReservationState::Ended
            {
                end_hold(&app.sessions.handle(kept.session), id).await;
            }
            return answered(Err::<(), _>(refused));
        }
    };
    tokio::spawn(end_stale_actor(app.sessions.handle(kept.session)));
    // Nobody confirms anything here any more: the same for each repeated request.
    let tether = match app.engine.store.moved_tether(kept.session).await {
        Ok(tether) => Some(tether),
        // What was left here was deleted. The session is the peer's all the same, and has to be told so.
        Err(StoreError::NoSession) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Json(Confirmed { reservation_id: id, session_id: there, tether }).into_response())
}

/// Release a reservation that was not confirmed.
#[utoipa::path(
    delete, path = "/v1/sbp/federation/reservations/{id}", tag = "federation",
    responses(
        (status = 204),
        (status = 401, body = bowline_sbp::api::ErrorBody),
        (status = 409, description = "It was confirmed", body = RefusedBody),
    ),
)]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    asks: Asks,
) -> Api<Response> {
    let federation = federation(&app)?;
    let id = reservation_id(id)?;
    let subject = id.to_string();
    let peer = peer(&app, federation, &asks, FederationAction::Release, &subject).await?;
    let released = app.engine.release_reservation(federation, &peer, id).await;
    if released.is_ok()
        && let Some(kept) = app.engine.store.reservation(id).await?
    {
        end_hold(&app.sessions.handle(kept.session), id).await;
    }
    answered(released.map(|()| StatusCode::NO_CONTENT))
}

/// How far to trace a session back.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Depth {
    #[serde(default = "one_hop")]
    depth: usize,
}

fn one_hop() -> usize {
    1
}

/// Where a session that went to the gateway that asks was before: gateways and ids, no more.
#[utoipa::path(
    get, path = "/v1/sbp/federation/lineage/{id}", tag = "federation",
    params(("depth" = Option<usize>, Query, description = "Through how many gateways at most: 1 to 8")),
    responses(
        (status = 200, body = CameFrom),
        (status = 401, body = bowline_sbp::api::ErrorBody),
        (status = 403, body = bowline_sbp::api::ErrorBody),
        (status = 404, description = "No such session went from here to there", body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn lineage(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    depth: Result<Query<Depth>, QueryRejection>,
    asks: Asks,
) -> Api<Json<CameFrom>> {
    let federation = federation(&app)?;
    let text = id.map(|Path(id)| id).unwrap_or_default();
    let peer = peer(&app, federation, &asks, FederationAction::Lineage, &text).await?;
    let no_number = |_| ApiError::new(Code::InvalidRequest, "`depth` is a number").param("depth");
    let Query(Depth { depth }) = depth.map_err(no_number)?;
    let session = body::session_id(&text)?;
    let depth = depth.clamp(1, MOST_HOPS);
    Ok(Json(app.engine.came_from(federation, &peer, session, depth).await?))
}

pub(super) fn federation(app: &App) -> Api<&Federation> {
    let none = || {
        ApiError::new(Code::NotFound, "this gateway takes part in no federation")
            .detail("see `federation.enabled`")
    };
    app.engine.federation.as_deref().ok_or_else(none)
}

/// What says who asks.
pub(crate) struct Asks {
    headers: HeaderMap,
    /// The network that the request is from; none: this machine.
    from: Option<PeerName>,
}

impl<S: Sync> FromRequestParts<S> for Asks {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Peer>().filter(|peer| !peer.is_local());
        let from = peer.map(|peer| peer.name().network());
        Ok(Self { headers: parts.headers.clone(), from })
    }
}

/// Who asks, by its federation token.
async fn peer(
    app: &App,
    federation: &Federation,
    Asks { headers, from }: &Asks,
    action: FederationAction,
    subject: &str,
) -> Api<AskingGateway> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = bearer.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    let asked = Asked { gateway: &federation.me().id, action, subject };
    Ok(federation.authenticate(&*app.engine.store, token, asked, from.as_ref()).await?)
}

fn reservation_id(id: Result<Path<String>, PathRejection>) -> Api<ReservationId> {
    let text = id.map(|Path(id)| id).unwrap_or_default();
    let id = text.parse().map_err(|_| ApiError::new(Code::InvalidUuid, "the id is not a UUID"))?;
    Ok(ReservationId(id))
}

fn answered(result: Result<impl IntoResponse, NotReserved>) -> Api<Response> {
    match result {
        Ok(answer) => Ok(answer.into_response()),
        Err(NotReserved::Failed(failure)) => Err(failure.into()),
        Err(NotReserved::Refused(why)) => Ok(refused(why)),
    }
}

/// The one table of refusals.
fn refused(why: Refusal) -> Response {
    let code = match why {
        Refusal::Used => Code::TokenConsumed,
        Refusal::Gone | Refusal::Unknown => Code::NotFound,
        Refusal::Reserved
        | Refusal::Working
        | Refusal::Ended
        | Refusal::Changed
        | Refusal::Confirmed => Code::SessionConflict,
    };
    let failure = Failure::new(code, why.to_string());
    let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::CONFLICT);
    let error = ErrorDetail {
        code: code.as_str().into(),
        message: failure.message,
        detail: None,
        kind: code.openai_type().into(),
        param: None,
    };
    let mut response = (status, Json(RefusedBody { error, refused: why })).into_response();
    if why.passes() {
        response.headers_mut().insert(header::RETRY_AFTER, 1.into());
    }
    response
}
