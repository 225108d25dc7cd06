//! Approvals of tool calls over HTTP: list and decide.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use bowline_sbp::access::Action;
use bowline_sbp::api::{ApprovalList, Decision};
use bowline_sbp::approval::{Approval, ApprovalState as Stands};
use bowline_sbp::error::Code;
use bowline_sbp::id::ApprovalId;
use bowline_sbp::session::{Command, Reply};

use super::error::ApiError;
use super::sessions::Named;
use super::{App, body, find};
use crate::auth::Credentials;
use crate::clock;
use crate::session::refused;

type Api<T> = Result<T, ApiError>;

/// A session's approvals, newest first.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/approvals", tag = "tools",
    responses((status = 200, body = ApprovalList), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Named(id): Named,
    credentials: Credentials,
) -> Api<Json<ApprovalList>> {
    find(&app.engine, id, &credentials, Action::ReadSession).await?;
    let mut approvals = app.engine.store.approvals(id).await?;
    // An expired approval is still `pending` in the store if its session has no actor.
    let now = clock::now();
    let over =
        |approval: &&mut Approval| approval.state == Stands::Pending && approval.expires_at <= now;
    approvals.iter_mut().filter(over).for_each(|approval| approval.state = Stands::Expired);
    Ok(Json(ApprovalList { session_id: id, approvals }))
}

/// Approve or deny a tool call. The first decision counts.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/approvals/{approval_id}", tag = "tools",
    request_body = Decision,
    responses(
        (status = 200, body = Approval),
        (status = 404, body = bowline_sbp::api::ErrorBody),
        (status = 409, description = "It was decided otherwise before, or it has expired",
         body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn decide(
    State(app): State<Arc<App>>,
    Path((id, approval)): Path<(String, String)>,
    credentials: Credentials,
    body: Body,
) -> Api<Json<Approval>> {
    let id = body::session_id(&id)?;
    let (_, identity) = app.engine.allow_in(&credentials, id, Action::Decide).await?;
    let bytes = body::read(body, &app.engine.limits).await?;
    let Decision { approved, always } = body::json(&bytes)?;
    let unknown = || {
        ApiError::new(Code::NotFound, "the session has no such approval")
            .detail("GET /v1/sessions/{id}/approvals lists them")
    };
    let approval: ApprovalId = approval.parse().map_err(|_| unknown())?;
    let by = identity.decider(credentials.from.as_ref());
    let decide = Command::Decide { approval, approved, always, by };
    let stands = match app.sessions.handle(id).call(decide).await? {
        Reply::Decided(Some(stands)) => *stands,
        Reply::Refused(refusal) => return Err(refused(refusal).into()),
        // The actor does not know it any more: it was decided some time ago.
        _ => {
            let all = app.engine.store.approvals(id).await?;
            let found = all.into_iter().find(|known| known.approval_id == approval);
            found.ok_or_else(unknown)?
        }
    };
    match (stands.state, approved) {
        (Stands::Approved | Stands::Used, true) | (Stands::Denied, false) => Ok(Json(stands)),
        (Stands::Expired, _) => Err(ApiError::new(
            Code::SessionConflict,
            "the approval has expired, which counts as denied",
        )),
        _ => Err(ApiError::new(Code::SessionConflict, "the approval was decided otherwise before")),
    }
}
