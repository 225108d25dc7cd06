//! `bowline approvals`: list, approve, deny.

use std::process::ExitCode;

use bowline_sbp::approval::{Approval, ApprovalState};
use bowline_sbp::id::SessionId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::cli::approvals::{ApprovalsArgs, ApprovalsCommand, DecideArgs};
use crate::failure::{Failure, FailureKind};
use crate::terminal::{note, one_line, say, table, utc};

/// The longest input of a call that is shown whole.
const SHOWN: usize = 60;
/// Digits of an id that are enough to name an approval.
const FEWEST: usize = 4;

/// A call that waits, and its session.
struct Waiting {
    session: SessionId,
    title: String,
    approval: Approval,
}

pub(crate) async fn run(args: ApprovalsArgs) -> Result<ExitCode, Failure> {
    match args.command {
        ApprovalsCommand::List { gateway, json } => list(&Api::new(&gateway).await?, json).await,
        ApprovalsCommand::Approve { decide: args, always } => decide(args, true, always).await,
        ApprovalsCommand::Deny(args) => decide(args, false, false).await,
    }
}

async fn list(api: &Api, json: bool) -> Result<ExitCode, Failure> {
    let all = waiting(api).await?;
    if json {
        let views: Vec<_> = all
            .iter()
            .map(|one| json!({ "session_id": one.session, "approval": one.approval }))
            .collect();
        say!("{}", json!({ "approvals": views }));
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        note!("no tool call waits for an answer");
        return Ok(ExitCode::SUCCESS);
    }
    let row = |one: &Waiting| {
        let Approval { approval_id, tool_name, tool_input, device, changed, expires_at, .. } =
            &one.approval;
        let on = device.as_deref().map_or_else(String::new, |device| format!(" on {device}"));
        let changed = if changed.is_some() { " (changed)" } else { "" };
        let tool = one_line(&format!("{tool_name}{on}{changed}"));
        let mut input = one_line(&tool_input.to_string());
        if input.chars().count() > SHOWN {
            input = input.chars().take(SHOWN - 1).collect::<String>() + "…";
        }
        [approval_id.to_string(), tool, input, one.title.clone(), utc(*expires_at)]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    say!("{}", table(["id", "tool", "input", "session", "until"], &rows).trim_end());
    Ok(ExitCode::SUCCESS)
}

async fn decide(args: DecideArgs, approved: bool, always: bool) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway).await?;
    let wanted = args.id.to_lowercase();
    let named = |one: &Waiting| {
        let id = one.approval.approval_id.to_string();
        id == wanted || wanted.len() >= FEWEST && (id.starts_with(&wanted) || id.ends_with(&wanted))
    };
    let mut found: Vec<_> = waiting(&api).await?.into_iter().filter(named).collect();
    let one = match (found.pop(), found.len()) {
        (Some(one), 0) => one,
        (Some(_), _) => {
            return Err(Failure::new(format!("several waiting calls are named by {}", args.id))
                .hint("write more of the id; `bowline approvals list` shows them")
                .kind(FailureKind::Usage));
        }
        (None, _) => {
            return Err(Failure::new(format!("no call waits that is named by {}", args.id))
                .hint("`bowline approvals list` shows them; a decided or expired one is gone")
                .kind(FailureKind::NotFound));
        }
    };
    let path = format!("/v1/sessions/{}/approvals/{}", one.session, one.approval.approval_id);
    let said = api
        .call(Method::POST, &path, Some(json!({ "approved": approved, "always": always })))
        .await?;
    let (tool, word) =
        (one_line(&one.approval.tool_name), if approved { "approved" } else { "denied" });
    match args.json {
        true => say!("{said}"),
        false => note!("{tool} in session {} is {word}", one.session),
    }
    Ok(ExitCode::SUCCESS)
}

/// All calls that wait in sessions that the caller sees.
async fn waiting(api: &Api) -> Result<Vec<Waiting>, Failure> {
    let mut all = Vec::new();
    let mut before = None;
    loop {
        let after = before.as_ref().map_or_else(String::new, |id| format!("&before={id}"));
        let page = api.get(&format!("/v1/sessions?limit=200{after}")).await?;
        let sessions = page["sessions"].as_array().cloned().unwrap_or_default();
        for session in sessions.iter().filter(|s| s["approvals_pending"].as_u64() > Some(0)) {
            all.extend(of_session(api, session).await?);
        }
        match page["next"].as_str() {
            Some(next) => before = Some(next.to_owned()),
            None => return Ok(all),
        }
    }
}

async fn of_session(api: &Api, session: &Value) -> Result<Vec<Waiting>, Failure> {
    let id = session["session_id"].as_str().unwrap_or_default();
    let title = one_line(session["title"].as_str().unwrap_or(id));
    let list = api.get(&format!("/v1/sessions/{id}/approvals")).await?;
    let approvals: Vec<Approval> =
        serde_json::from_value(list["approvals"].clone()).map_err(Failure::new)?;
    let session: SessionId = id.parse().map_err(Failure::new)?;
    let pending = approvals.into_iter().filter(|one| one.state == ApprovalState::Pending);
    Ok(pending.map(|approval| Waiting { session, title: title.clone(), approval }).collect())
}
