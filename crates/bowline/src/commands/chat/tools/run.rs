//! A shell command, after the user has agreed to exactly this one.

use std::time::{Duration, Instant};

use bowline_client::surface::ToolOutcome;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{program, required};

/// How long a command may take where the gateway does not say for how long it waits.
const PATIENCE: Duration = Duration::from_secs(25);
/// What is left for the answer to travel.
const MARGIN: Duration = Duration::from_millis(500);

/// Runs it, as long as someone waits for what comes of it.
pub(super) async fn run(input: &Value, until: Option<Instant>) -> ToolOutcome {
    let left = |until: Instant| until.saturating_duration_since(Instant::now());
    let patience = until.map_or(PATIENCE, |until| left(until).saturating_sub(MARGIN));
    let mut command = Command::new("sh");
    command.arg("-c").arg(required(input, "command")?);
    let said = program::run(command, None, patience).await?;
    Ok(json!({ "exit_code": said.code, "stdout": said.stdout, "stderr": said.stderr }))
}
