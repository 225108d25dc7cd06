//! The processes around a relay, started as a user starts them: relay with control plane, a daemon, and a
//! paired device's local port.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::cores;
use super::server::Process;

/// A daemon that offers one TCP target, and a device's local port that leads to it.
pub(super) struct Tunnelled {
    _folder: TempDir,
    _relay: Process,
    daemon: Process,
    device: Process,
    /// The device's local port.
    pub(super) port: SocketAddr,
    /// Connections through the tunnel arrive here.
    pub(super) behind: TcpListener,
}

impl Tunnelled {
    /// `public` makes the address at which the ends reach the relay from the one where it listens.
    pub(super) fn start(public: impl FnOnce(SocketAddr) -> Result<SocketAddr>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let data = |name: &str| folder.path().join(name);
        let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let public = public(listen)?;
        let relay = start_relay(&folder, listen, public)?;
        let key = user_key(&folder)?;
        let behind = TcpListener::bind("127.0.0.1:0")?;
        let mut daemon = bowline()?;
        daemon.args(["daemon", "run", "--json", "--tcp", &behind.local_addr()?.to_string()]);
        daemon.args(["--control", &format!("http://{listen}"), "--data"]).arg(data("daemon"));
        let (daemon, _) = Process::start(with_key(daemon, &key))?;
        let (device, port) = pair(data("daemon"), data("device"))?;
        Ok(Self { _folder: folder, _relay: relay, daemon, device, port, behind })
    }

    /// Resident memory of daemon and device, in bytes.
    pub(super) fn memory(&self) -> Result<f64> {
        Ok(self.daemon.memory()? + self.device.memory()?)
    }
}

/// Pairs a device with the daemon or gateway of a data folder, and has it listen.
pub(super) fn pair(home: PathBuf, device: PathBuf) -> Result<(Process, SocketAddr)> {
    let offer = said(bowline()?.args(["pair", "--json", "--data"]).arg(home))?;
    let text = offer["text"].as_str().context("no pairing text")?;
    let accept = ["pair", "--accept", text, "--name", "home", "--json", "--data"];
    said(bowline()?.args(accept).arg(&device))?;
    let mut connect = bowline()?;
    connect.args(["connect", "home", "--json", "--listen", "127.0.0.1:0", "--data"]).arg(device);
    let (process, line) = Process::start(connect)?;
    let established: Value = serde_json::from_str(&line)?;
    let address = established["listen"].as_str().context("no address")?.parse()?;
    Ok((process, address))
}

/// Adds a user to the relay's control plane.
pub(super) fn user_key(folder: &TempDir) -> Result<String> {
    let add = ["control", "user", "add", "bench", "--json", "--data"];
    let user = said(bowline()?.args(add).arg(folder.path().join("control")))?;
    Ok(user["api_key"].as_str().context("no key")?.to_owned())
}

pub(super) fn with_key(mut command: Command, key: &str) -> Command {
    command.env("BOWLINE_CONTROL_KEY", key);
    command
}

/// A relay with its control plane. `public` is the address that daemons and devices are told.
pub(super) fn start_relay(
    folder: &TempDir,
    listen: SocketAddr,
    public: SocketAddr,
) -> Result<Process> {
    let mut relay = bowline()?;
    relay.args(["relay", "run", "--with-control", "--json", "--listen", &listen.to_string()]);
    relay.args(["--url", &format!("http://{public}"), "--rate-connections", "0", "--data"]);
    relay.arg(folder.path().join("control"));
    Ok(Process::start(relay)?.0)
}

/// This program, without the user's own settings, on all cores.
pub(super) fn bowline() -> Result<Command> {
    let mut command = cores::anywhere(&std::env::current_exe()?);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BOWLINE_")) {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("BOWLINE_LOG_LEVEL", "error");
    Ok(command)
}

/// Runs a command to its end, and reads its JSON.
pub(super) fn said(command: &mut Command) -> Result<Value> {
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(serde_json::from_slice(&output.stdout)?)
}
