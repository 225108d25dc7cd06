//! A server process that dies with this one.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a server may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the server, says its process id, and kills it when the pipe closes: stdin ends with whoever holds
/// the other end, even if that was killed.
const WATCHED: &str = r#"
    "$@" </dev/null >&2 &
    echo $!
    cat >/dev/null
    kill -9 $! 2>/dev/null
    kill -CONT $! 2>/dev/null
    wait $!
"#;

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, Copy)]
pub struct Certificate<'a> {
    pub certificate: &'a str,
    pub key: &'a str,
}

#[derive(Debug)]
pub(crate) struct Server {
    shell: Child,
    /// Of the server itself.
    pid: u32,
}

impl Server {
    /// Starts it; what it says goes to `log`.
    pub(crate) fn start(command: &Command, log: std::fs::File) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCHED, "sh"]).arg(command.get_program()).args(command.get_args());
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let mut line = String::new();
        BufReader::new(shell.stdout.take().context("no output")?).read_line(&mut line)?;
        let pid = line.trim().parse().context("the server did not start")?;
        Ok(Self { shell, pid })
    }

    /// Whether it is there.
    pub(crate) fn is_running(&self) -> bool {
        std::path::Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    /// Sends a signal to it and to all its children.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        let mut all = children(self.pid)?;
        all.push(self.pid);
        let pids = all.iter().map(u32::to_string);
        let mut kill = Command::new("kill");
        kill.arg(format!("-{name}")).args(pids).stderr(Stdio::null()).status()?;
        Ok(())
    }

    /// kill -9, of its children too; returns when they are gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut all = children(self.pid)?;
        all.push(self.pid);
        self.signal("KILL")?;
        let is_there = |pid: &u32| match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            // What was killed and not yet waited for is gone, too.
            Ok(stat) => !stat.contains(") Z "),
            Err(_) => false,
        };
        let begun = Instant::now();
        while all.iter().any(is_there) {
            if begun.elapsed() > PATIENCE {
                bail!("a server does not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(self.shell.stdin.take());
        self.shell.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The processes that this one started.
fn children(pid: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    // One that has ended has none.
    let list = std::fs::read_to_string(path).unwrap_or_default();
    Ok(list.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

/// Asks again and again until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            bail!("{what} does not get ready");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
