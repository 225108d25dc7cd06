//! `bowline fork`: a second session from the present state, or an earlier step, of another.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::export::show;
use crate::api::{Api, IdempotentRequest, fresh_key};
use crate::cli::roaming::ForkArgs;
use crate::failure::Failure;

pub(crate) async fn run(args: ForkArgs) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway).await?;
    let id = api.session(&args.session).await?;
    let made = fork(&api, &id, args.label, args.at_step).await?;
    let new = made["fork_session_id"].as_str().unwrap_or("-");
    let lines = [
        new.to_owned(),
        format!(
            "\nIt shares {} messages with {id}, up to step {}. Talk to it with `bowline chat --session {new}`.",
            made["fork_point_msg"], made["fork_point_step"]
        ),
    ];
    Ok(show(&made, args.json, &lines))
}

/// Forks a session; returns the gateway's answer.
pub(super) async fn fork(
    api: &Api,
    id: &str,
    label: Option<String>,
    at_step: Option<u64>,
) -> Result<Value, Failure> {
    let deed = IdempotentRequest {
        path: &format!("/v1/sbp/sessions/{id}/fork"),
        body: json!({ "label": label, "at_step": at_step }).to_string(),
        key: fresh_key(),
        name: "the fork",
        look: format!(
            "before you try again, check with `bowline lineage {id}` or `bowline sessions list` \
             whether it did"
        ),
    };
    Ok(serde_json::from_str(&api.once(deed).await?).unwrap_or_default())
}
