//! `/v1/keys`: make, list and revoke users' keys.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use bowline_sbp::access::{Action, CredentialId};
use bowline_sbp::api::{KeyList, KeyMade, KeyView, MakeKey};
use bowline_sbp::error::Code;
use bowline_sbp::gateway_key::KeyFingerprint;
use bowline_sbp::id::UserId;
use bowline_store::UserKey;
use serde::Deserialize;

use super::error::ApiError;
use super::sessions::bad_query;
use super::users::{name_of, named};
use super::{App, body};
use crate::auth::{Credentials, hash_token};
use crate::clock;
use crate::engine::{Deed, Identity, NewKey, scopes_for};

type Api<T> = Result<T, ApiError>;

/// The most patterns of a key, and the longest one.
const MOST_PATTERNS: usize = 32;
const LONGEST_PATTERN: usize = 256;
/// The longest life of a key, in seconds: a hundred years.
const LONGEST_LIFE: u64 = 100 * 366 * 24 * 3600;

/// Make a key for a user. It is shown only now.
#[utoipa::path(
    post, path = "/v1/keys", tag = "users", request_body = MakeKey,
    responses((status = 201, body = KeyMade), (status = 422, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn make(
    State(app): State<Arc<App>>,
    credentials: Credentials,
    body: Body,
) -> Api<(StatusCode, Json<KeyMade>)> {
    let engine = &app.engine;
    let by = engine.allow(&credentials, Action::ManageUsers).await?;
    let asked: MakeKey = body::json(&body::read(body, &engine.limits).await?)?;
    let wrong = |what: String, param| ApiError::new(Code::InvalidRequest, what).param(param);
    let user = match &asked.user {
        Some(name) => named(&app, name).await?,
        None => engine.user_named(None).await?.ok_or_else(ApiError::internal)?,
    };
    let scopes = scopes_for(&user, asked.scopes).map_err(|bad| wrong(bad.to_string(), "scopes"))?;
    if asked.expires_in.is_some_and(|seconds| !(1..=LONGEST_LIFE).contains(&seconds)) {
        return Err(wrong(
            "`expires_in` is between one second and a hundred years, in seconds".into(),
            "expires_in",
        ));
    }
    for (patterns, param) in [(&asked.agents, "agents"), (&asked.models, "models")] {
        let fits = |text: &String| {
            !text.is_empty() && text.len() <= LONGEST_PATTERN && !text.contains('\n')
        };
        if patterns.len() > MOST_PATTERNS || !patterns.iter().all(fits) {
            let what = format!(
                "`{param}` has at most {MOST_PATTERNS} patterns of 1 to {LONGEST_PATTERN} bytes"
            );
            return Err(wrong(what, param));
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
        device: None,
        scopes,
        agents: asked.agents,
        models: asked.models,
        limits: asked.limits,
        created_at: now,
        expires_at: asked.expires_in.map(|seconds| now + Duration::from_secs(seconds)),
        revoked_at: None,
        last_used_at: None,
    };
    engine.store.add_key(key.clone()).await?;
    engine.audit.change(&by, Deed::MakeKey, format!("{} {}", key.id, key.user)).await?;
    let made = KeyMade { key: made.text(), view: key_view(key, &user.name) };
    Ok((StatusCode::CREATED, Json(made)))
}

#[derive(Debug, Deserialize)]
pub(crate) struct KeysQuery {
    user: Option<String>,
}

/// List keys and paired devices, newest first; never their secrets.
#[utoipa::path(
    get, path = "/v1/keys", tag = "users",
    params(("user" = Option<String>, Query, description = "Only those of this user")),
    responses((status = 200, body = KeyList)),
)]
pub(crate) async fn list(
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
    let by = app.engine.allow(&credentials, Action::ManageUsers).await?;
    let unknown = || {
        ApiError::new(Code::NotFound, "there is no such key, or it was revoked before")
            .detail("GET /v1/keys lists them")
    };
    let id: CredentialId = id.parse().map_err(|_| unknown())?;
    match revoke_key(&app, &by, id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown()),
    }
}

/// Revokes a key or device. Returns whether there was one that was not revoked before.
pub(super) async fn revoke_key(app: &App, by: &Identity, id: CredentialId) -> Api<bool> {
    let revoked = app.engine.store.revoke_key(id.clone(), clock::now()).await?;
    app.engine.users.changed();
    if revoked {
        app.engine.audit.change(by, Deed::RevokeKey, id).await?;
    }
    Ok(revoked)
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
        limits: key.limits,
        device: key.device.map(|device| KeyFingerprint::of(&device).to_string()),
    }
}
