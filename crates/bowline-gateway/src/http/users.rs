//! `/v1/users`: add, list, disable, enable and limit users.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use bowline_sbp::access::{Action, OWNER, Role};
use bowline_sbp::api::{AddUser, UserAdded, UserList, UserPatch, UserView};
use bowline_sbp::error::Code;
use bowline_sbp::id::UserId;
use bowline_store::User;
use uuid::Uuid;

use super::error::ApiError;
use super::{App, body};
use crate::auth::Credentials;
use crate::clock;
use crate::engine::{Deed, LONGEST_NAME, fits_in_name};

type Api<T> = Result<T, ApiError>;

/// Add a user. From the first one on, callers on the gateway's own machine need a key, too.
#[utoipa::path(
    post, path = "/v1/users", tag = "users", request_body = AddUser,
    responses((status = 201, body = UserAdded), (status = 409, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn add(
    State(app): State<Arc<App>>,
    credentials: Credentials,
    body: Body,
) -> Api<(StatusCode, Json<UserAdded>)> {
    let engine = &app.engine;
    let by = engine.allow(&credentials, Action::ManageUsers).await?;
    let asked: AddUser = body::json(&body::read(body, &engine.limits).await?)?;
    let user = User {
        id: UserId(Uuid::now_v7()),
        name: name_of(&asked.name, "name")?,
        role: asked.role.unwrap_or(Role::Member),
        created_at: clock::now(),
        disabled_at: None,
        limits: asked.limits,
    };
    engine.store.add_user(user.clone()).await?;
    engine.audit.change(&by, Deed::AddUser, user.id).await?;
    let was_open = engine.access.is_open();
    engine.access.close();
    engine.users.changed();
    let loopback_closed = was_open && !engine.access.is_open();
    Ok((StatusCode::CREATED, Json(UserAdded { loopback_closed, view: view(user) })))
}

/// List all users.
#[utoipa::path(get, path = "/v1/users", tag = "users", responses((status = 200, body = UserList)))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    credentials: Credentials,
) -> Api<Json<UserList>> {
    app.engine.allow(&credentials, Action::ManageUsers).await?;
    let users = app.engine.store.users().await?;
    Ok(Json(UserList { users: users.into_iter().map(view).collect() }))
}

/// Disable a user, or enable it again; change its limits.
///
/// While it is disabled, none of its keys opens anything.
#[utoipa::path(
    patch, path = "/v1/users/{name}", tag = "users", request_body = UserPatch,
    responses((status = 200, body = UserView), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn patch(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    credentials: Credentials,
    body: Body,
) -> Api<Json<UserView>> {
    let engine = &app.engine;
    let by = engine.allow(&credentials, Action::ManageUsers).await?;
    let asked: UserPatch = body::json(&body::read(body, &engine.limits).await?)?;
    let mut user = named(&app, &name).await?;
    if asked.disabled.is_none() && asked.limits.is_none() {
        return Err(ApiError::new(Code::InvalidRequest, "say `disabled` or `limits`"));
    }
    if user.id == OWNER && asked.disabled.is_some() {
        return Err(ApiError::new(Code::InvalidRequest, "the owner cannot be disabled"));
    }
    if let Some(changes) = asked.limits {
        changes.apply(&mut user.limits);
        let limited = engine.store.limit_user(user.id, user.limits).await?;
        user = limited.ok_or_else(|| no_user(&name))?;
        engine.users.changed();
        engine.audit.change(&by, Deed::LimitUser, user.id).await?;
    }
    if let Some(disabled) = asked.disabled {
        let disabled = engine.store.disable_user(user.id, disabled.then(clock::now)).await?;
        user = disabled.ok_or_else(|| no_user(&name))?;
        engine.users.changed();
        let deed = if user.disabled_at.is_some() { Deed::DisableUser } else { Deed::EnableUser };
        engine.audit.change(&by, deed, user.id).await?;
    }
    Ok(Json(view(user)))
}

/// The user of that name.
pub(super) async fn named(app: &App, name: &str) -> Api<User> {
    app.engine.user_named(Some(name)).await?.ok_or_else(|| no_user(name))
}

pub(super) fn no_user(name: &str) -> ApiError {
    let name: String = name.chars().take(LONGEST_NAME).collect();
    ApiError::new(Code::NotFound, format!("there is no user {name}"))
        .detail("`bowline users list` shows them")
}

/// A name of a user or key, if it can be one.
pub(super) fn name_of(text: &str, param: &'static str) -> Api<String> {
    let name = text.trim();
    if name.is_empty() || name.chars().count() > LONGEST_NAME || !name.chars().all(fits_in_name) {
        let what = format!("`{param}` has 1 to {LONGEST_NAME} letters, digits and -_.@");
        return Err(ApiError::new(Code::InvalidRequest, what).param(param));
    }
    Ok(name.to_owned())
}

fn view(user: User) -> UserView {
    let User { id, name, role, created_at, disabled_at, limits } = user;
    UserView { id, name, role, created_at, disabled_at, limits }
}
