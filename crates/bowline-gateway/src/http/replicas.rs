//! `/v1/replicas`: the gateway processes that share the store.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use bowline_sbp::access::Action;
use bowline_sbp::session::ReplicaId;
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::App;
use super::error::ApiError;
use crate::auth::Credentials;

/// A gateway process that is not known to be dead.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ReplicaView {
    #[schema(value_type = String)]
    replica: Uuid,
    /// It is the one that answers.
    answers: bool,
    /// When its lease ends unless it renews it, by the clock of the database. A gateway that is alone
    /// needs no lease that ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ends_at: Option<Timestamp>,
    /// Its lease has ended: soon it is declared dead, and others take its sessions over.
    expired: bool,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ReplicaList {
    replicas: Vec<ReplicaView>,
}

/// List the gateway processes that share the store.
#[utoipa::path(
    get, path = "/v1/replicas", tag = "operations",
    responses((status = 200, body = ReplicaList), (status = 401, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    credentials: Credentials,
) -> Result<Json<ReplicaList>, ApiError> {
    app.engine.allow(&credentials, Action::Operate).await?;
    let ReplicaId(me) = app.sessions.me();
    let replicas = app.engine.store.replicas().await?;
    let replicas = replicas.into_iter().map(|lease| ReplicaView {
        replica: lease.id.0,
        answers: lease.id.0 == me,
        lease_ends_at: lease.expires_at,
        expired: lease.has_expired,
    });
    Ok(Json(ReplicaList { replicas: replicas.collect() }))
}
