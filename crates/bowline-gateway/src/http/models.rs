//! `GET /v1/models`: the models that a client may name.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use bowline_sbp::access::Action;
use bowline_sbp::error::Code;
use serde_json::{Value, json};

use super::App;
use super::caller::Caller;
use super::error::ApiError;
use crate::auth::Credentials;

/// Every model of every upstream that a request may name, and the built-in agent.
#[utoipa::path(get, path = "/v1/models", tag = "turns", responses((status = 200, body = Object)))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    credentials: Credentials,
) -> Result<Json<Value>, ApiError> {
    may_list(&app, credentials).await?;
    Ok(Json(json!({ "object": "list", "data": app.engine.models.list().await })))
}

/// One model. Its id may contain slashes.
#[utoipa::path(
    get, path = "/v1/models/{model}", tag = "turns",
    params(("model" = String, Path, description = "The model's id, as it is or percent-encoded")),
    responses(
        (status = 200, body = Object),
        (status = 404, description = "No upstream lists it", body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    credentials: Credentials,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    may_list(&app, credentials).await?;
    let models = app.engine.models.list().await;
    let found = models.into_iter().find(|model| model["id"] == id.as_str());
    found.map(Json).ok_or_else(|| {
        ApiError::new(Code::NotFound, "no upstream lists this model")
            .detail(
                "GET /v1/models shows those there are; an upstream may serve more than it lists",
            )
            .param("model")
    })
}

/// Who may list models: whoever may call one, with a key or a session's token. SDKs list them with the
/// key that they have.
async fn may_list(app: &App, credentials: Credentials) -> Result<(), ApiError> {
    let caller = Caller::identify(&app.engine, credentials).await?;
    match caller.session {
        Some(_) => Ok(()),
        None => Ok(caller.identity()?.check(Action::UseModels)?),
    }
}
