//! A PostgreSQL server.

mod standby;

use std::fs::File;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::port::quiet_port;
use crate::server::{Certificate, Server, until};

/// PostgreSQL refuses to run as root: then it runs as `nobody`.
const NOBODY: u32 = 65_534;
/// Its user, who may do everything and needs no password.
const USER: &str = "bowline";

/// Whether commits are flushed to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    On,
    /// Faster; survives a crash of the server, not one of the machine.
    Off,
}

#[derive(Debug)]
pub struct Postgres {
    server: Server,
    folder: TempDir,
    programs: PathBuf,
    port: u16,
    /// As on its command line: `name=value`.
    settings: Vec<String>,
}

impl Postgres {
    /// Starts a new server, and waits until it takes connections.
    pub fn start(flush: Flush) -> Result<Self> {
        Self::make(flush, None)
    }

    /// The same for one that speaks TLS with this certificate.
    pub fn start_with_tls(flush: Flush, tls: Certificate<'_>) -> Result<Self> {
        Self::make(flush, Some(tls))
    }

    fn make(flush: Flush, tls: Option<Certificate<'_>>) -> Result<Self> {
        let programs = programs()?;
        let folder = empty_folder()?;
        let data = folder.path().join("data");
        let made = as_somebody(&programs.join("initdb"))
            .args(["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--username"])
            .args([USER, "--pgdata"])
            .arg(&data)
            .current_dir("/")
            .output()?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let fsync = if flush == Flush::On { "fsync=on" } else { "fsync=off" };
        let mut settings = vec![fsync.to_owned()];
        if let Some(tls) = tls {
            let (certificate, key) =
                (folder.path().join("cert.pem"), folder.path().join("key.pem"));
            write_private(&certificate, tls.certificate)?;
            write_private(&key, tls.key)?;
            settings.push("ssl=on".to_owned());
            settings.push(format!("ssl_cert_file={}", certificate.display()));
            settings.push(format!("ssl_key_file={}", key.display()));
        }
        let port = quiet_port();
        let server = run(&programs, folder.path(), port, &settings)?;
        Ok(Self { server, folder, programs, port, settings })
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        self.url_at(&self.address(), database)
    }

    /// The same by another way to the server: `HOST:PORT`.
    pub fn url_at(&self, address: &str, database: &str) -> String {
        format!("postgres://{USER}@{address}/{database}?sslmode=disable")
    }

    /// Makes an empty database.
    pub fn make_database(&self, name: &str) -> Result<()> {
        self.sql("postgres", &format!("CREATE DATABASE {name}")).map(drop)
    }

    /// Runs statements by `psql`; returns what they select, without decoration.
    pub fn sql(&self, database: &str, statements: &str) -> Result<String> {
        let said = Command::new(self.programs.join("psql"))
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set"])
            .args(["ON_ERROR_STOP=1", "--command", statements, &self.url(database)])
            .output()?;
        ensure!(said.status.success(), "psql: {}", String::from_utf8_lossy(&said.stderr));
        Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
    }

    /// A program of the same installation, such as `pgbench`.
    pub fn program(&self, name: &str) -> PathBuf {
        let beside = self.programs.join(name);
        if beside.exists() { beside } else { PathBuf::from(name) }
    }

    /// kill -9.
    pub fn kill(&mut self) -> Result<()> {
        self.server.kill()
    }

    /// Starts it again after [`Postgres::kill`], with the same data at the same address.
    pub fn restart(&mut self) -> Result<()> {
        let _ = std::fs::remove_file(self.folder.path().join("data/postmaster.pid"));
        self.server = run(&self.programs, self.folder.path(), self.port, &self.settings)?;
        Ok(())
    }

    /// Sends a signal, such as `STOP`, to all its processes.
    pub fn signal(&self, name: &str) -> Result<()> {
        self.server.signal(name)
    }
}

/// A folder with an empty one for the data, which the server's user may write.
fn empty_folder() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    std::fs::create_dir(&data)?;
    // PostgreSQL refuses data that others may read.
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700))?;
    if is_root() {
        chown(folder.path(), Some(NOBODY), Some(NOBODY))?;
        chown(&data, Some(NOBODY), Some(NOBODY))?;
    }
    Ok(folder)
}

/// A file that its server alone may read.
fn write_private(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY))?;
    }
    Ok(())
}

fn run(programs: &Path, folder: &Path, port: u16, settings: &[String]) -> Result<Server> {
    let mut command = as_somebody(&programs.join("postgres"));
    command.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
    command.args(["-c", "max_connections=200", "-c", "log_min_messages=fatal"]);
    command.args(settings.iter().flat_map(|setting| ["-c", setting]));
    let log = File::create(folder.join("log"))?;
    let server = Server::start(&command, log)?;
    let ready = || {
        let mut ready = Command::new(programs.join("pg_isready"));
        ready.args(["--quiet", "--host", "127.0.0.1", "--port", &port.to_string()]);
        ready.stdout(Stdio::null()).stderr(Stdio::null());
        ready.status().is_ok_and(|status| status.success())
    };
    let started = until("PostgreSQL", || ready() || !server.is_running());
    let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    started.with_context(log)?;
    ensure!(server.is_running(), "PostgreSQL has ended: {}", log());
    Ok(server)
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// A command that root runs as somebody without rights.
fn as_somebody(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
    command.args([&user, &group, "--clear-groups"]).arg(program);
    command
}

/// The folder with PostgreSQL's programs: Debian keeps each version's apart, and not in `PATH`.
fn programs() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        let mut versions: Vec<_> = versions.flatten().map(|version| version.path()).collect();
        versions.sort();
        folders.extend(versions.into_iter().rev().map(|version| version.join("bin")));
    }
    let has_all = |folder: &&PathBuf| {
        ["initdb", "postgres", "pg_isready"].iter().all(|name| folder.join(name).exists())
    };
    let found = folders.iter().find(has_all).cloned();
    found.context("PostgreSQL is not installed here; on Debian: apt-get install postgresql")
}
