//! An MCP server that is a child process: started, read, and always killed and reaped.
//!
//! It leads a process group of its own, so that its own children end with it: a server run by `npx`
//! or `uvx` is a grandchild. When the connection ends, the whole group is killed and reaped.

use std::process::Stdio;
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

/// How long a program may take to exit after its stdin was closed.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// How much of its stderr is logged, in bytes.
const MOST_COMPLAINTS: u64 = 64 << 10;
const LONGEST_COMPLAINT: usize = 512;

/// A running program.
#[derive(Debug)]
pub(super) struct Child {
    program: Box<dyn ChildWrapper>,
    /// It is reaped: its process id may belong to another process now, and must not be killed.
    ended: bool,
}

impl Child {
    /// Starts it with only these environment variables.
    pub(super) fn start(
        server: &str,
        command: &str,
        args: &[String],
        env: &[(String, String)],
    ) -> Result<(Self, ChildStdout, ChildStdin), String> {
        let mut program = Command::new(command);
        program.args(args).env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = CommandWrap::from(program);
        program.wrap(ProcessGroup::leader()).wrap(KillOnDrop);
        let program = program.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "its program was not found; check `command`".to_owned(),
            _ => format!("its program cannot be started: {error}"),
        })?;
        let mut child = Self { program, ended: false };
        if let Some(complaints) = child.program.stderr().take() {
            tokio::spawn(listen(server.to_owned(), complaints));
        }
        let pipes = child.program.stdout().take().zip(child.program.stdin().take());
        let (stdout, stdin) = pipes.ok_or_else(|| "its program has no pipes".to_owned())?;
        Ok((child, stdout, stdin))
    }

    /// Its stdin is closed: waits for it to exit, then kills the rest of its process group. Returns
    /// its exit status if it exited in time.
    pub(super) async fn end(mut self) -> Option<String> {
        let left = tokio::time::timeout(STOP_TIMEOUT, self.program.inner_mut().wait()).await;
        // The leader may have left children running.
        let _ = self.program.start_kill();
        let _ = self.program.wait().await;
        self.ended = true;
        let status = left.ok()?.ok()?;
        Some(format!("its program ended: {status}"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Kills the whole group; the runtime reaps its leader.
        if !self.ended {
            let _ = self.program.start_kill();
        }
    }
}

/// Logs a server's stderr. The rest beyond the limit is read and dropped, so that the server never
/// blocks on a full pipe.
async fn listen(server: String, complaints: ChildStderr) {
    let mut lines = BufReader::new(complaints.take(MOST_COMPLAINTS));
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        let text: String =
            text.chars().filter(|c| !c.is_control()).take(LONGEST_COMPLAINT).collect();
        tracing::debug!(%server, %text, "stderr of an MCP server");
        line.clear();
    }
    let _ = tokio::io::copy(&mut lines.into_inner().into_inner(), &mut tokio::io::sink()).await;
}
