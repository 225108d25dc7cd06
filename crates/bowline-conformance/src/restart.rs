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
            // A gateway that is not ready says so with 503; a proxy before one that is gone has 502 and 504, too.
            Ok(answer) if answer.status().as_u16() < 500 => return Ok(()),
            Ok(answer) if begun.elapsed() >= within => {
                return Err(format!("it answers {}", answer.status().as_u16()));
            }
            Ok(_) => {}
            Err(error) if begun.elapsed() >= within => {
                return Err(bowline_net::outbound::reason(error));
            }
            Err(_) => {}
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A proxy that answers with one status after the other.
    async fn proxy(statuses: &'static [u16]) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            for status in statuses {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await.unwrap();
                let answer = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Target::new(&url, None).unwrap()
    }

    #[tokio::test]
    async fn a_proxys_word_for_a_server_that_is_gone_is_no_answer_of_the_server() {
        let target = proxy(&[502, 503, 504, 404]).await;
        assert_eq!(answers(&target, READY).await, Ok(()));
        let target = proxy(&[502]).await;
        assert_eq!(answers(&target, Duration::ZERO).await, Err("it answers 502".into()));
    }
}
