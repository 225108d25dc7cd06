//! `/v1/users`, `/v1/keys` and shares of sessions.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use bowline_sbp::access::{Action, CredentialId, OWNER, Role, Scope, Scopes};
use bowline_sbp::api::{
    AddUser, KeyList, KeyMade, KeyView, MakeKey, ShareList, ShareRequest, ShareView, UserList,
    UserPatch, UserView,
};
use bowline_sbp::error::Code;
use bowline_sbp::id::UserId;
use bowline_store::{User, UserKey};
use serde::Deserialize;
use uuid::Uuid;

use super::error::ApiError;
use super::sessions::{Named, bad_query};
use super::{App, body, find};
use crate::auth::{Credentials, Denied, hash_token};
use crate::clock;
use crate::engine::NewKey;

type Api<T> = Result<T, ApiError>;

const LONGEST_NAME: usize = 64;
/// The most patterns of a key, and the longest one.
const MOST_PATTERNS: usize = 32;
/// The longest life of a key, in seconds: a hundred years.
const LONGEST_LIFE: u64 = 100 * 366 * 24 * 3600;

/// Add a user. From the first one on, callers on the gateway's own machine need a key, too.
#[utoipa::path(
    post, path = "/v1/users", tag = "users", request_body = AddUser,
    responses((status = 201, body = UserView), (status = 409, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn add(
    State(app): State<Arc<App>>,
    credentials: Credentials,
    body: Body,
) -> Api<(StatusCode, Json<UserView>)> {
    let engine = &app.engine;
    engine.allow(&credentials, Action::ManageUsers).await?;
    let asked: AddUser = body::json(&body::read(body, &engine.limits).await?)?;
    let user = User {
        id: UserId(Uuid::now_v7()),
        name: name_of(&asked.name, "name")?,
        role: asked.role.unwrap_or(Role::Member),
        created_at: clock::now(),
        disabled_at: None,
    };
    engine.store.add_user(user.clone()).await?;
    engine.access.close();
    engine.users.changed();
    Ok((StatusCode::CREATED, Json(view(user))))
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

/// Disable a user, or enable it again. While it is disabled, none of its keys opens anything.
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
    engine.allow(&credentials, Action::ManageUsers).await?;
    let asked: UserPatch = body::json(&body::read(body, &engine.limits).await?)?;
    let user = named(&app, &name).await?;
    if user.id == OWNER {
        return Err(ApiError::new(Code::InvalidRequest, "the owner cannot be disabled"));
    }
    let at = asked.disabled.then(clock::now);
    let user = engine.store.disable_user(user.id, at).await?;
    engine.users.changed();
    Ok(Json(view(user.ok_or_else(|| no_user(&name))?)))
}

/// Make a key for a user. It is shown only now.
#[utoipa::path(
    post, path = "/v1/keys", tag = "users", request_body = MakeKey,
    responses((status = 201, body = KeyMade), (status = 422, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn make_key(
    State(app): State<Arc<App>>,
    credentials: Credentials,
    body: Body,
) -> Api<(StatusCode, Json<KeyMade>)> {
    let engine = &app.engine;
    engine.allow(&credentials, Action::ManageUsers).await?;
    let asked: MakeKey = body::json(&body::read(body, &engine.limits).await?)?;
    let wrong = |what: String, param| ApiError::new(Code::InvalidRequest, what).param(param);
    let user = match &asked.user {
        Some(name) => named(&app, name).await?,
        None => owner(&app).await?,
    };
    let most = user.role.most();
    let scopes = asked.scopes.unwrap_or_else(|| Scopes::all().without(Scope::Admin));
    if scopes.is_empty() || scopes.both(most) != scopes {
        let most = format!("a key of a {} has one or more of {most}", user.role.as_str());
        return Err(wrong(most, "scopes"));
    }
    if asked.expires_in.is_some_and(|seconds| !(1..=LONGEST_LIFE).contains(&seconds)) {
        return Err(wrong("`expires_in` is at least one second".into(), "expires_in"));
    }
    for patterns in [&asked.agents, &asked.models] {
        let fits = |text: &String| !text.is_empty() && text.len() <= 256 && !text.contains('\n');
        if patterns.len() > MOST_PATTERNS || !patterns.iter().all(fits) {
            let what = format!("at most {MOST_PATTERNS} patterns of 1 to 256 bytes");
            return Err(wrong(what, "agents"));
        }
    }
    let made = NewKey::make().ok_or_else(|| {
        ApiError::new(Code::Internal, "the operating system gave no random bytes")
    })?;
    let now = clock::now();
    let key = UserKey {
        id: made.id.clone(),
        user: user.id,
        name: name_of(&asked.name, "name")?,
        secret: hash_token(&made.secret),
        scopes,
        agents: asked.agents,
        models: asked.models,
        created_at: now,
        expires_at: asked.expires_in.map(|seconds| now + Duration::from_secs(seconds)),
        revoked_at: None,
        last_used_at: None,
    };
    engine.store.add_key(key.clone()).await?;
    let made = KeyMade { key: made.text(), view: key_view(key, &user.name) };
    Ok((StatusCode::CREATED, Json(made)))
}

#[derive(Debug, Deserialize)]
pub(crate) struct KeysQuery {
    user: Option<String>,
}

/// List keys, newest first; never their secrets.
#[utoipa::path(
    get, path = "/v1/keys", tag = "users",
    params(("user" = Option<String>, Query, description = "Only those of this user")),
    responses((status = 200, body = KeyList)),
)]
pub(crate) async fn keys(
    State(app): State<Arc<App>>,
    query: Result<Query<KeysQuery>, QueryRejection>,
    credentials: Credentials,
) -> Api<Json<KeyList>> {
    app.engine.allow(&credentials, Action::ManageUsers).await?;
    let Query(query) = query.map_err(bad_query)?;
    let user = match &query.user {
        Some(name) => Some(named(&app, name).await?.id),
        None => None,
    };
    let used = app.engine.users.take_used();
    app.engine.store.keys_used(used).await?;
    let users = app.engine.store.users().await?;
    let name = |id: UserId| users.iter().find(|user| user.id == id).map_or("", |user| &user.name);
    let keys = app.engine.store.keys(user).await?;
    let keys = keys.into_iter().map(|key| {
        let of = name(key.user);
        key_view(key, of)
    });
    Ok(Json(KeyList { keys: keys.collect() }))
}

/// Revoke a key. It opens nothing from now on, and surfaces that attached with it are disconnected.
#[utoipa::path(
    delete, path = "/v1/keys/{id}", tag = "users",
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
    app.engine.allow(&credentials, Action::ManageUsers).await?;
    let unknown = || {
        ApiError::new(Code::NotFound, "there is no such key, or it was revoked before")
            .detail("GET /v1/keys lists them")
    };
    let id: CredentialId = id.parse().map_err(|_| unknown())?;
    let revoked = app.engine.store.revoke_key(id, clock::now()).await?;
    app.engine.users.changed();
    if revoked { Ok(StatusCode::NO_CONTENT) } else { Err(unknown()) }
}

/// With whom a session is shared.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/shares", tag = "users",
    responses((status = 200, body = ShareList), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn shares(
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
    find(&app.engine, id, &credentials, Action::ShareSession).await?;
    let user = named(&app, &user).await?;
    app.engine.store.share(id, user.id, None).await?;
    app.engine.users.changed();
    Ok(StatusCode::NO_CONTENT)
}

async fn named(app: &App, name: &str) -> Api<User> {
    let users = app.engine.store.users().await?;
    let found = users.into_iter().find(|user| user.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| no_user(name))
}

async fn owner(app: &App) -> Api<User> {
    let users = app.engine.store.users().await?;
    users.into_iter().find(|user| user.id == OWNER).ok_or_else(ApiError::internal)
}

fn no_user(name: &str) -> ApiError {
    let name: String = name.chars().take(LONGEST_NAME).collect();
    ApiError::new(Code::NotFound, format!("there is no user {name}"))
        .detail("`bowline users list` shows them")
}

/// A name of a user or key, if it can be one.
fn name_of(text: &str, param: &'static str) -> Api<String> {
    let fits = |c: char| c.is_alphanumeric() || "-_.@ ".contains(c);
    let name = text.trim();
    if name.is_empty() || name.chars().count() > LONGEST_NAME || !name.chars().all(fits) {
        let what = format!("`{param}` has 1 to {LONGEST_NAME} letters, digits and -_.@");
        return Err(ApiError::new(Code::InvalidRequest, what).param(param));
    }
    Ok(name.to_owned())
}

fn view(user: User) -> UserView {
    let User { id, name, role, created_at, disabled_at } = user;
    UserView { id, name, role, created_at, disabled_at }
}

fn key_view(key: UserKey, user: &str) -> KeyView {
    KeyView {
        id: key.id,
        user: user.to_owned(),
        name: key.name,
        scopes: key.scopes,
        agents: key.agents,
        models: key.models,
        created_at: key.created_at,
        expires_at: key.expires_at,
        revoked_at: key.revoked_at,
        last_used_at: key.last_used_at,
    }
}
