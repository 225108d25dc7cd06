//! The tool `run`: a shell command, after the user has approved it.

use std::time::{Duration, Instant};

use bowline_client::surface::ToolOutcome;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{program, required};

/// The timeout of a command if the gateway's tool call has none.
const PATIENCE: Duration = Duration::from_secs(25);
/// Reserved for sending the result before the tool call times out.
const MARGIN: Duration = Duration::from_millis(500);

/// Runs the command; kills it shortly before the tool call times out.
pub(super) async fn run(input: &Value, until: Option<Instant>) -> ToolOutcome {
    let left = |until: Instant| until.saturating_duration_since(Instant::now());
    let patience = until.map_or(PATIENCE, |until| left(until).saturating_sub(MARGIN));
    let mut command = Command::new("sh");
    command.arg("-c").arg(required(input, "command")?);
    let said = program::run(command, None, patience).await?;
    Ok(json!({ "exit_code": said.code, "stdout": said.stdout, "stderr": said.stderr }))
}
