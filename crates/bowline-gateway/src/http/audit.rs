//! `GET /v1/audit`, and what every request leaves for it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use bowline_net::Peer;
use bowline_sbp::access::Action;
use bowline_sbp::api::{AuditList, AuditView};
use bowline_store::AuditQuery;
use serde::Deserialize;

use super::App;
use super::body::SESSION_TOKEN;
use super::error::ApiError;
use super::sessions::bad_query;
use super::users::named;
use crate::auth::{Credentials, RequestNote};
use crate::clock;

const USUAL: u32 = 100;
const MOST: u32 = 10_000;

#[derive(Debug, Deserialize)]
pub(crate) struct AuditParams {
    since: Option<u64>,
    user: Option<String>,
    limit: Option<u32>,
}

/// What was done at the gateway, and by whom, newest first.
#[utoipa::path(
    get, path = "/v1/audit", tag = "users",
    params(
        ("since" = Option<u64>, Query, description = "Only the last so many seconds"),
        ("user" = Option<String>, Query, description = "Only what this user did"),
        ("limit" = Option<u32>, Query, description = "1 to 10000, default 100"),
    ),
    responses((status = 200, body = AuditList)),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    query: Result<Query<AuditParams>, QueryRejection>,
    credentials: Credentials,
) -> Result<Json<AuditList>, ApiError> {
    let engine = &app.engine;
    engine.allow(&credentials, Action::ReadAudit).await?;
    let Query(asked) = query.map_err(bad_query)?;
    let since =
        asked.since.and_then(|seconds| clock::now().checked_sub(Duration::from_secs(seconds)).ok());
    let user = match &asked.user {
        Some(name) => Some(named(&app, name).await?.id),
        None => None,
    };
    let limit = asked.limit.unwrap_or(USUAL).clamp(1, MOST);
    engine.audit.flush();
    engine.store.settle().await?;
    let users = engine.store.users().await?;
    let entries = engine.store.audit(AuditQuery { since, user, limit }).await?;
    let view = |entry: bowline_store::AuditEntry| AuditView {
        at: entry.at,
        user_id: entry.user,
        user: users.iter().find(|user| Some(user.id) == entry.user).map(|user| user.name.clone()),
        credential: entry.credential,
        action: entry.action,
        object: entry.object,
        result: entry.result,
        address: entry.address,
        times: entry.times,
    };
    Ok(Json(AuditList { entries: entries.into_iter().map(view).collect() }))
}

/// Tallies requests that are refused, and uses of keys.
pub(crate) async fn tally(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let note = Arc::new(RequestNote::default());
    request.extensions_mut().insert(Arc::clone(&note));
    let peer = request.extensions().get::<Peer>();
    let (from, is_device) = (peer.map(Peer::name), peer.is_some_and(|peer| peer.device.is_some()));
    let headers = request.headers();
    let shown = is_device
        || headers.contains_key(header::AUTHORIZATION)
        || headers.contains_key(SESSION_TOKEN);
    let response = next.run(request).await;
    let (audit, by) = (&app.engine.audit, note.credential.get());
    match (response.status(), by) {
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, by) => audit.refused(by, shown, from),
        (_, Some(by)) => audit.used(by, from),
        (_, None) => {}
    }
    response
}
