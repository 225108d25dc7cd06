//! Other programs, called by name with arguments: never through a shell, within a time, and with a
//! bounded answer. Each leads a process group of its own, so that nothing of it is left behind.

use std::process::Stdio;
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// How long a small helper may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// After how long one that goes on in the background counts as settled.
const SETTLED: Duration = Duration::from_secs(3);
/// The most of a program's words that is kept.
pub(super) const MOST_OUTPUT: u64 = 256 << 10;

/// Whether a program of that name can be called.
pub(super) fn is_here(name: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// What a program said, and whether all went well.
pub(super) struct Output {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Hands a text, if any, to a helper that may stay in the background afterwards: one that owns the
/// clipboard, or a browser. Its words are of no interest, and waiting for their end would be waiting
/// for its end.
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
        // One that is still there after that has taken it.
        _ => Ok(()),
    }
}

/// Calls a helper, and gives what it said; its own words if it failed.
pub(super) async fn call(name: &str, args: &[&str], input: Option<&str>) -> Result<String, String> {
    let mut command = Command::new(name);
    command.args(args);
    let said = run(command, input, PATIENCE).await?;
    match said.code {
        Some(0) => Ok(said.stdout),
        _ => Err(format!("{name} failed: {}", said.stderr.trim())),
    }
}

/// Runs a program to its end, or kills it when its time is over.
pub(super) async fn run(
    mut command: Command,
    input: Option<&str>,
    patience: Duration,
) -> Result<Output, String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut command = CommandWrap::from(command);
    command.wrap(ProcessGroup::leader()).wrap(KillOnDrop);
    let child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
    let mut child = Group(child);
    let (stdin, stdout, stderr) =
        (child.0.stdin().take(), child.0.stdout().take(), child.0.stderr().take());
    let work = async {
        let give = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // A program that does not want it all is no mistake.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ((), stdout, stderr) = tokio::join!(give, take(stdout), take(stderr));
        let ended = child.0.inner_mut().wait().await.map_err(|error| error.to_string())?;
        Ok(Output { code: ended.code(), stdout, stderr })
    };
    let ended = tokio::time::timeout(patience, work).await;
    ended.unwrap_or_else(|_| Err(format!("it took longer than {} s", patience.as_secs())))
}

/// A program and all it has started, which end with this.
struct Group(Box<dyn ChildWrapper>);

impl Drop for Group {
    fn drop(&mut self) {
        // Nobody may be left, which is as well.
        let _ = self.0.start_kill();
    }
}

/// All a program says, of which the beginning is kept: one that is cut off in the middle would fail.
async fn take(from: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut from) = from else { return String::new() };
    let mut kept = Vec::new();
    let _ = (&mut from).take(MOST_OUTPUT).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&kept).into_owned()
}
