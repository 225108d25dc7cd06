//! A shell command, after the user has agreed to exactly this one.

use std::time::Duration;

use bowline_client::surface::ToolOutcome;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{program, required};

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(25);

pub(super) async fn run(input: &Value) -> ToolOutcome {
    let mut command = Command::new("sh");
    command.arg("-c").arg(required(input, "command")?);
    let said = program::run(command, None, PATIENCE).await?;
    Ok(json!({ "exit_code": said.code, "stdout": said.stdout, "stderr": said.stderr }))
}
