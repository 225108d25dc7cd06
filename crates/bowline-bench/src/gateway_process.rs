//! A gateway in its own process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const ANY_PORT: &str = "127.0.0.1:0";
pub(crate) const CHAT: &str = "/v1/chat/completions";

pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: SocketAddr,
    /// From the start to the first line of output.
    pub(crate) ready: Duration,
    /// Unfinished turns of the previous process that it recovered.
    pub(crate) recovered: u64,
}

impl Gateway {
    pub(crate) async fn start(data: &Path, upstream: SocketAddr) -> Result<Self> {
        Self::start_with(data, upstream, &[]).await
    }

    /// With settings in environment variables.
    pub(crate) async fn start_with(
        data: &Path,
        upstream: SocketAddr,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        Self::run(data, &format!("http://{upstream}/v1"), ANY_PORT, &[], settings).await
    }

    /// At that address, with further flags.
    pub(crate) async fn start_at(
        data: &Path,
        upstream: SocketAddr,
        listen: SocketAddr,
        flags: &[String],
    ) -> Result<Self> {
        let listen = listen.to_string();
        Self::run(data, &format!("http://{upstream}/v1"), &listen, flags, &[]).await
    }

    /// With an upstream over TLS; `certificate` is the file of its certificate.
    pub(crate) async fn start_with_tls(
        data: &Path,
        upstream: SocketAddr,
        certificate: &Path,
    ) -> Result<Self> {
        // Replaces the system's root certificates where those are files, as on Linux.
        let certificate = certificate.to_str().context("the certificate's path is no text")?;
        let settings = [("SSL_CERT_FILE", certificate)];
        Self::run(data, &format!("https://{upstream}/v1"), ANY_PORT, &[], &settings).await
    }

    async fn run(
        data: &Path,
        upstream: &str,
        listen: &str,
        flags: &[String],
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let begun = Instant::now();
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["gateway", "run", "--json", "--listen", listen, "--data"])
            .arg(data)
            .args(flags)
            // Without a model the start would ask the upstream for one.
            .args(["--upstream", upstream, "--model", "bench"])
            .env("XDG_CONFIG_HOME", data)
            .env("BOWLINE_LOG_LEVEL", "warn")
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let line = BufReader::new(stdout).lines().next_line().await?;
        let took = begun.elapsed();
        let ready: Value = serde_json::from_str(&line.context("the gateway did not start")?)?;
        let url = ready["url"].as_str().context("no address")?;
        let address = url.trim_start_matches("http://").parse()?;
        let recovered = ready["recovered_turns"].as_u64().unwrap_or(0);
        Ok(Self { child, address, ready: took, recovered })
    }

    /// Stops it in good order; returns when it has ended.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let pid = self.child.id().context("the gateway process has ended")?.to_string();
        Command::new("kill").args(["-TERM", &pid]).status().await?;
        self.child.wait().await?;
        Ok(())
    }

    /// kill -9.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Resident memory, in bytes.
    pub(crate) fn memory(&self) -> Result<f64> {
        let pid = self.child.id().context("the gateway process has ended")?;
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm"))?;
        let pages: f64 = statm.split_whitespace().nth(1).context("no memory figure")?.parse()?;
        Ok(pages * 4096.0)
    }

    /// Resets the peak of resident memory.
    pub(crate) fn forget_peak(&self) -> Result<()> {
        let pid = self.child.id().context("the gateway process has ended")?;
        Ok(std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
    }

    /// The peak of resident memory since the last reset, in bytes.
    pub(crate) fn peak(&self) -> Result<f64> {
        let pid = self.child.id().context("the gateway process has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).context("no peak")?;
        Ok(kib.parse::<f64>()? * 1024.0)
    }
}
