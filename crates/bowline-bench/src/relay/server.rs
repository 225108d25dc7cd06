//! The measured servers, each in its own process: a relay and a TCP forwarder.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cores;
use super::issuer::Issuer;
use super::wire;

#[derive(Debug)]
pub(super) struct MeasuredServer {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
    /// The listener that the forwarder connects to.
    pub(super) behind: TcpListener,
}

impl MeasuredServer {
    /// A relay without rate limits, and without pings: idle pairs of the bench answer none.
    pub(super) fn relay(issuer: &Issuer) -> Result<Self> {
        let mut command = cores::measured(&std::env::current_exe()?);
        command
            .args(["relay", "run", "--json", "--listen", "127.0.0.1:0", "--grace", "3s"])
            .args([
                "--issuer",
                &issuer.url,
                "--rate-frames",
                "0",
                "--rate-connections",
                "0",
                "--ping-every",
                "10m",
            ])
            .env("BOWLINE_LOG_LEVEL", "warn");
        let (process, line) = Process::start(command)?;
        let ready: serde_json::Value = serde_json::from_str(&line)?;
        let url = ready["url"].as_str().context("no address")?;
        let address = url.trim_start_matches("ws://").trim_end_matches("/relay").parse()?;
        let relay = Self { process, address, behind: TcpListener::bind("127.0.0.1:0")? };
        let patience = Instant::now() + Duration::from_secs(10);
        while !wire::get(address, "/readyz")?.starts_with("HTTP/1.1 200") {
            if Instant::now() > patience {
                bail!("the relay did not become ready");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(relay)
    }

    pub(super) fn forwarder() -> Result<Self> {
        Self::forwarder_by(cores::measured(&std::env::current_exe()?))
    }

    /// On all cores, beside servers that have them, too.
    pub(super) fn forwarder_anywhere() -> Result<Self> {
        Self::forwarder_by(cores::anywhere(&std::env::current_exe()?))
    }

    fn forwarder_by(mut command: Command) -> Result<Self> {
        let behind = TcpListener::bind("127.0.0.1:0")?;
        command.args(["bench", "forward", "--to", &behind.local_addr()?.to_string()]);
        let (process, line) = Process::start(command)?;
        Ok(Self { process, address: line.trim().parse()?, behind })
    }
}

/// A child process, killed on drop.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts it and waits for its first line.
    pub(crate) fn start(mut command: Command) -> Result<(Self, String)> {
        let mut process = Self(command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?);
        let stdout = process.0.stdout.take().context("no output")?;
        let mut line = String::new();
        if BufReader::new(stdout).read_line(&mut line)? == 0 {
            bail!("the measured process did not start");
        }
        Ok((process, line))
    }

    /// Starts a process without output.
    pub(super) fn silent(command: &mut Command) -> Result<Self> {
        Ok(Self(command.stdout(Stdio::null()).stdin(Stdio::null()).spawn()?))
    }

    /// CPU time used so far by all threads.
    pub(super) fn cpu(&self) -> Result<Duration> {
        let mut nanos = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.0.id()))? {
            let line = std::fs::read_to_string(task?.path().join("schedstat"))?;
            let time = line.split_whitespace().next().context("no processor time")?;
            nanos += time.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// Resident memory, in bytes.
    pub(super) fn memory(&self) -> Result<f64> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.0.id()))?;
        let pages: f64 = statm.split_whitespace().nth(1).context("no memory figure")?.parse()?;
        Ok(pages * 4096.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
