//! `bowline fork`: a second session where another one is, or was.

use std::process::ExitCode;

use reqwest::Method;
use serde_json::json;

use super::export::show;
use crate::api::Api;
use crate::cli::roaming::ForkArgs;
use crate::failure::Failure;

pub(crate) async fn run(args: ForkArgs) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway)?;
    let id = api.session(&args.session).await?;
    let asked = json!({ "label": args.label, "at_step": args.at_step });
    let made = api.call(Method::POST, &format!("/v1/sbp/sessions/{id}/fork"), Some(asked)).await?;
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
