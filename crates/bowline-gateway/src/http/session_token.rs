//! `/v1/sessions/{id}/token`: replace or revoke a session's token.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bowline_sbp::access::Action;
use bowline_sbp::api::SessionTokenMade;
use bowline_sbp::error::Code;
use bowline_sbp::id::SessionId;
use bowline_store::{Session, TokenHash};

use super::App;
use super::error::ApiError;
use super::sessions::Named;
use crate::auth::{Credentials, hash_token, random};
use crate::clock;
use crate::engine::{Deed, Identity};

type Api<T> = Result<T, ApiError>;

/// Replace a session's token by a new one. The old one opens nothing from now on, and surfaces that
/// attached with it are disconnected.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/token", tag = "users",
    responses(
        (status = 200, body = SessionTokenMade),
        (status = 404, body = bowline_sbp::api::ErrorBody),
        (status = 409, description = "Somebody else replaced it at the same time",
         body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn rotate(
    State(app): State<Arc<App>>,
    Named(id): Named,
    credentials: Credentials,
) -> Api<Json<SessionTokenMade>> {
    let (session, identity) = own(&app, &credentials, id).await?;
    let token = app.engine.access.token_number(id, session.token_number + 1);
    replace(&app, &session, hash_token(&token)).await?;
    app.engine.audit.change(&identity, Deed::RotateToken, id).await?;
    let session_token = Some(token).filter(|_| identity.may_hold_token_of(&session));
    let made = Session { token_at: clock::now(), ..session };
    let expires_at = app.engine.access.token_expires_at(&made);
    Ok(Json(SessionTokenMade { session_id: id, session_token, expires_at }))
}

/// Revoke a session's token. Only keys of its user open the session then, and tokens of its devices.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}/token", tag = "users",
    responses(
        (status = 204, description = "Revoked"),
        (status = 404, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    Named(id): Named,
    credentials: Credentials,
) -> Api<StatusCode> {
    let (session, by) = own(&app, &credentials, id).await?;
    // The hash of nothing that anybody knows.
    replace(&app, &session, TokenHash(random())).await?;
    app.engine.audit.change(&by, Deed::RevokeToken, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn own(app: &App, credentials: &Credentials, id: SessionId) -> Api<(Session, Identity)> {
    Ok(app.engine.allow_in(credentials, id, Action::ShareSession).await?)
}

async fn replace(app: &App, session: &Session, token: TokenHash) -> Api<()> {
    let Session { id, token_number, .. } = *session;
    match app.engine.store.replace_token(id, token_number, token, clock::now()).await? {
        true => {
            app.engine.users.changed();
            Ok(())
        }
        false => Err(ApiError::new(
            Code::SessionConflict,
            "the token was replaced at the same time; look at the session and try again",
        )),
    }
}
