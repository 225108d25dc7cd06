//! `bowline handoff`: another agent continues a session.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::export::show;
use crate::api::{Api, IdempotentRequest, fresh_key};
use crate::cli::roaming::HandoffArgs;
use crate::failure::Failure;

pub(crate) async fn run(args: HandoffArgs) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway).await?;
    let id = api.session(&args.session).await?;
    let asked = json!({
        "to_agent_id": args.to, "handoff_message": args.message, "reason": args.reason,
    });
    let deed = IdempotentRequest {
        path: &format!("/v1/sbp/sessions/{id}/handoff"),
        body: asked.to_string(),
        key: fresh_key(),
        name: "the handoff",
        look: format!(
            "before you try again, check with `bowline lineage {id}` or `bowline sessions list` \
             whether it did"
        ),
    };
    let made: Value = serde_json::from_str(&api.once(deed).await?).unwrap_or_default();
    let new = made["session_id"].as_str().unwrap_or("-");
    let lines = [
        format!("session {id} is suspended; agent {} continues it as", args.to),
        format!("  {new}"),
        format!("\nTalk to it with `bowline chat --session {new}`."),
    ];
    Ok(show(&made, args.json, &lines))
}
