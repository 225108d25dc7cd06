//! Runs child processes for tools: with a timeout and bounded output, and never through a shell
//! unless the tool is `run`. Each child leads its own process group, which is killed with it, so
//! that no descendants are left running.

use std::process::Stdio;
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// The timeout of a helper program.
const PATIENCE: Duration = Duration::from_secs(20);
/// A helper that stays in the background and has not failed by then counts as successful.
const SETTLED: Duration = Duration::from_secs(3);
/// The most bytes of stdout, and of stderr, that are kept.
pub(super) const MOST_OUTPUT: u64 = 256 << 10;

/// Whether a program of this name is in `PATH`.
pub(super) fn is_here(name: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// The exit code and the output of a child process; no code if a signal killed it.
pub(super) struct Output {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Starts a helper that may stay in the background, such as `xclip` or a browser, and writes
/// `input` to its stdin. Its stdout and stderr are not piped, since reading them to the end would
/// wait until it exits.
pub(super) async fn hand_over(
    name: &str,
    args: &[&str],
    input: Option<&str>,
) -> Result<(), String> {
    let mut command = Command::new(name);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let failed = |error| format!("{name} cannot be started: {error}");
    let mut child = command.spawn().map_err(failed)?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        let _ = tokio::time::timeout(PATIENCE, stdin.write_all(input.as_bytes())).await;
    }
    match tokio::time::timeout(SETTLED, child.wait()).await {
        Ok(Ok(ended)) if !ended.success() => Err(format!("{name} failed ({ended})")),
        // Still running: it accepted the input and stays in the background.
        _ => Ok(()),
    }
}

/// Runs a helper to its end and returns its stdout, or its stderr as the error.
pub(super) async fn call(name: &str, args: &[&str], input: Option<&str>) -> Result<String, String> {
    let mut command = Command::new(name);
    command.args(args);
    let said = run(command, input, PATIENCE).await?;
    match said.code {
        Some(0) => Ok(said.stdout),
        _ => Err(format!("{name} failed: {}", said.stderr.trim())),
    }
}

/// Runs a command to its end, or kills its process group at the timeout.
pub(super) async fn run(
    mut command: Command,
    input: Option<&str>,
    patience: Duration,
) -> Result<Output, String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut command = CommandWrap::from(command);
    command.wrap(ProcessGroup::leader()).wrap(KillOnDrop);
    let child = command.spawn().map_err(|error| format!("cannot start the program: {error}"))?;
    let mut child = Group(child);
    let (stdin, stdout, stderr) =
        (child.0.stdin().take(), child.0.stdout().take(), child.0.stderr().take());
    let work = async {
        let give = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // A write error means that the child does not read all of its stdin: not a failure.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ((), stdout, stderr) = tokio::join!(give, take(stdout), take(stderr));
        let ended = child.0.inner_mut().wait().await.map_err(|error| error.to_string())?;
        Ok(Output { code: ended.code(), stdout, stderr })
    };
    let ended = tokio::time::timeout(patience, work).await;
    ended.unwrap_or_else(|_| Err(format!("timed out after {} s", patience.as_secs())))
}

/// The process group of a child process; killed on drop.
struct Group(Box<dyn ChildWrapper>);

impl Drop for Group {
    fn drop(&mut self) {
        // Fails if the process group has already exited.
        let _ = self.0.start_kill();
    }
}

/// Reads a stream to its end and keeps the first [`MOST_OUTPUT`] bytes. The rest is read and
/// dropped: closing the pipe early would kill the child with SIGPIPE.
async fn take(from: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut from) = from else { return String::new() };
    let mut kept = Vec::new();
    let _ = (&mut from).take(MOST_OUTPUT).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&kept).into_owned()
}
