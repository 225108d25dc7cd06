//! Restarts the server under test by a command of the user's.
//!
//! The command is run by `sh -c` with `RESTART=kill` (kill -9) or `RESTART=stop` (SIGTERM) in its
//! environment. It ends the server, starts it again with the same data and address, and returns
//! without waiting; the suite then asks until the server answers.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use crate::target::Target;

/// The command that restarts the server.
#[derive(Debug, Clone)]
pub struct Restart {
    command: String,
}

/// How the server is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// kill -9.
    Kill,
    /// SIGTERM.
    Stop,
}

impl Restart {
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into() }
    }

    /// Restarts the server, and returns when it answers. An error says what went wrong.
    pub(crate) async fn run(&self, end: End, target: &Target) -> Result<(), String> {
        let word = match end {
            End::Kill => "kill",
            End::Stop => "stop",
        };
        // The server that the command starts would keep a pipe open: nothing of it is read.
        let status = Command::new("sh")
            .args(["-c", &self.command])
            .env("RESTART", word)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .status();
        let status = timeout(COMMAND, status).await;
        let status = status.map_err(|_| {
            format!("the restart command (RESTART={word}) takes over {} s", COMMAND.as_secs())
        })?;
        let status = status.map_err(|error| format!("the restart command did not run: {error}"))?;
        if !status.success() {
            return Err(format!("the restart command (RESTART={word}) failed: {status}"));
        }
        answers(target, READY).await
    }
}

/// Asks until the server answers anything.
pub(crate) async fn answers(target: &Target, within: Duration) -> Result<(), String> {
    let begun = Instant::now();
    let path = "/v1/sessions/00000000-0000-4000-8000-000000000000";
    loop {
        let request = target.http.get(target.at(path)).timeout(TRY);
        match request.send().await {
            // A gateway that is not ready says so with 503.
            Ok(answer) if answer.status() != 503 => return Ok(()),
            Ok(_) => {}
            Err(error) if begun.elapsed() >= within => {
                return Err(bowline_net::outbound::reason(error));
            }
            Err(_) => {}
        }
        if begun.elapsed() >= within {
            return Err("it answers 503".into());
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// How long the command may take.
const COMMAND: Duration = Duration::from_secs(60);
/// How long the server may take to answer after it was started again.
const READY: Duration = Duration::from_secs(60);
/// How long it may take to answer one request.
const TRY: Duration = Duration::from_secs(5);
