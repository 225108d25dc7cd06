//! `bowline handoff`: another agent goes on.

use std::process::ExitCode;

use reqwest::Method;
use serde_json::json;

use super::export::show;
use crate::api::Api;
use crate::cli::roaming::HandoffArgs;
use crate::failure::Failure;

pub(crate) async fn run(args: HandoffArgs) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway)?;
    let id = api.session(&args.session).await?;
    let asked = json!({
        "to_agent_id": args.to, "handoff_message": args.message, "reason": args.reason,
    });
    let made =
        api.call(Method::POST, &format!("/v1/sbp/sessions/{id}/handoff"), Some(asked)).await?;
    let new = made["session_id"].as_str().unwrap_or("-");
    let lines = [
        format!("session {id} is suspended; agent {} goes on as", args.to),
        format!("  {new}"),
        format!("\nTalk to it with `bowline chat --session {new}`."),
    ];
    Ok(show(&made, args.json, &lines))
}
