//! `/v1/sessions/{id}/shares`: with whom a session is shared.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use bowline_sbp::access::Action;
use bowline_sbp::api::{ShareList, ShareRequest, ShareView};
use bowline_sbp::error::Code;
use bowline_sbp::id::UserId;

use super::error::ApiError;
use super::sessions::Named;
use super::users::named;
use super::{App, body, find};
use crate::auth::{Credentials, Denied};
use crate::engine::Deed;

type Api<T> = Result<T, ApiError>;

/// With whom a session is shared.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/shares", tag = "users",
    responses((status = 200, body = ShareList), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Named(id): Named,
    credentials: Credentials,
) -> Api<Json<ShareList>> {
    find(&app.engine, id, &credentials, Action::ShareSession).await?;
    let users = app.engine.store.users().await?;
    let name = |id: UserId| users.iter().find(|user| user.id == id).map(|user| user.name.clone());
    let shares = app.engine.store.shares(id).await?.into_iter();
    let shares =
        shares.filter_map(|with| Some(ShareView { user: name(with.user)?, scope: with.share }));
    Ok(Json(ShareList { session_id: id, shares: shares.collect() }))
}

/// Share a session with a user: to read it, to talk in it, or also to decide on its tool calls.
#[utoipa::path(
    put, path = "/v1/sessions/{id}/shares/{user}", tag = "users", request_body = ShareRequest,
    responses((status = 200, body = ShareView), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn share(
    State(app): State<Arc<App>>,
    Path((id, user)): Path<(String, String)>,
    credentials: Credentials,
    body: Body,
) -> Api<Json<ShareView>> {
    let id = body::session_id(&id)?;
    let (session, identity) = app.engine.allow_in(&credentials, id, Action::ShareSession).await?;
    let asked: ShareRequest = body::json(&body::read(body, &app.engine.limits).await?)?;
    let user = named(&app, &user).await?;
    // Nobody gives what they do not have.
    if let Some(scope) = asked.scope.scopes().iter().find(|scope| !identity.has(*scope)) {
        return Err(Denied::Scope(scope).into());
    }
    if user.id == session.user {
        return Err(ApiError::new(Code::InvalidRequest, "the session is that user's own"));
    }
    app.engine.store.share(id, user.id, Some(asked.scope)).await?;
    app.engine.users.changed();
    let object = format!("{id} {} {}", user.id, asked.scope.as_str());
    app.engine.audit.change(&identity, Deed::Share, object).await?;
    Ok(Json(ShareView { user: user.name, scope: asked.scope }))
}

/// Share a session with a user no more. Its surfaces are disconnected.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}/shares/{user}", tag = "users",
    responses(
        (status = 204, description = "Not shared any more"),
        (status = 404, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn unshare(
    State(app): State<Arc<App>>,
    Path((id, user)): Path<(String, String)>,
    credentials: Credentials,
) -> Api<StatusCode> {
    let id = body::session_id(&id)?;
    let (_, by) = app.engine.allow_in(&credentials, id, Action::ShareSession).await?;
    let user = named(&app, &user).await?;
    app.engine.store.share(id, user.id, None).await?;
    app.engine.users.changed();
    app.engine.audit.change(&by, Deed::Unshare, format!("{id} {}", user.id)).await?;
    Ok(StatusCode::NO_CONTENT)
}
