//! A Redis server without persistence: each start begins with an empty memory.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::port::quiet_port;
use crate::server::{Certificate, Server, until};

#[derive(Debug)]
pub struct Redis {
    server: Server,
    folder: TempDir,
    port: u16,
    /// Where it speaks TLS.
    tls_port: Option<u16>,
    /// More settings, as on the command line of redis-server.
    settings: Vec<String>,
}

impl Redis {
    /// Starts a new server, and waits until it answers.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// With more settings, such as `--requirepass`.
    pub fn start_with(settings: &[&str]) -> Result<Self> {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Self::make(tempfile::tempdir()?, None, settings)
    }

    /// One that also speaks TLS with this certificate, at a port of its own.
    pub fn start_with_tls(tls: Certificate<'_>) -> Result<Self> {
        let (folder, tls_port) = (tempfile::tempdir()?, quiet_port());
        let file = |name: &str| folder.path().join(name).display().to_string();
        let (certificate, key) = (file("cert.pem"), file("key.pem"));
        std::fs::write(&certificate, tls.certificate)?;
        std::fs::write(&key, tls.key)?;
        let settings = [
            ("--tls-port", tls_port.to_string()),
            ("--tls-cert-file", certificate),
            ("--tls-key-file", key),
            // Clients show none.
            ("--tls-auth-clients", "no".to_owned()),
        ];
        let settings = settings.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let settings = settings.collect();
        Self::make(folder, Some(tls_port), settings)
    }

    fn make(folder: TempDir, tls_port: Option<u16>, settings: Vec<String>) -> Result<Self> {
        let port = quiet_port();
        let server = run(folder.path(), port, &settings)?;
        Ok(Self { server, folder, port, tls_port, settings })
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// The URL with TLS, for a certificate that names `localhost`.
    pub fn tls_url(&self) -> Result<String> {
        Ok(format!("rediss://localhost:{}", self.tls_port.context("it does not speak TLS")?))
    }

    /// kill -9.
    pub fn kill(&mut self) -> Result<()> {
        self.server.kill()
    }

    /// Starts it again after [`Redis::kill`], at the same address and empty.
    pub fn restart(&mut self) -> Result<()> {
        self.server = run(self.folder.path(), self.port, &self.settings)?;
        Ok(())
    }

    /// Sends it a signal, such as `STOP`.
    pub fn signal(&self, name: &str) -> Result<()> {
        self.server.signal(name)
    }
}

fn run(folder: &Path, port: u16, settings: &[String]) -> Result<Server> {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
    command.args(["--appendonly", "no", "--dir"]).arg(folder).args(settings);
    let log = File::create(folder.join("log"))?;
    let server = Server::start(&command, log)?;
    let started = until("Redis", || answers(port) || !server.is_running());
    let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    started.with_context(log)?;
    ensure!(
        server.is_running(),
        "Redis has ended, or is not installed here (on Debian: apt-get install redis-server): {}",
        log()
    );
    Ok(server)
}

/// Whether it answers, be it that a password is missing.
fn answers(port: u16) -> bool {
    let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut first = [0; 1];
    socket.set_read_timeout(Some(Duration::from_secs(1))).is_ok()
        && socket.write_all(b"PING\r\n").is_ok()
        && socket.read_exact(&mut first).is_ok()
}
