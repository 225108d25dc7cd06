//! `ssh -L` on this machine, for comparison, where OpenSSH's client and server are installed.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use tempfile::TempDir;

use super::cores;
use super::server::Process;

const SSHD: &str = "/usr/sbin/sshd";
const PATIENCE: Duration = Duration::from_secs(20);

/// A port that ssh forwards through an sshd to `behind`.
pub(super) struct Ssh {
    _folder: TempDir,
    _server: Process,
    _client: Process,
    pub(super) port: SocketAddr,
    pub(super) behind: TcpListener,
}

impl Ssh {
    /// `None` if OpenSSH is not installed.
    pub(super) fn start() -> Result<Option<Self>> {
        if !Path::new(SSHD).exists() || Command::new("ssh").arg("-V").output().is_err() {
            return Ok(None);
        }
        let folder = tempfile::tempdir()?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700))?;
        let file = |name: &str| folder.path().join(name).display().to_string();
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &file(key)]);
            ensure!(keygen.status()?.success(), "ssh-keygen failed");
        }
        let [server, port] = [free_port()?, free_port()?];
        // sshd asks for this folder, which its package makes when the service starts.
        let _ = std::fs::create_dir_all("/run/sshd");
        let settings = [
            format!("ListenAddress {server}"),
            format!("HostKey {}", file("host")),
            format!("AuthorizedKeysFile {}", file("user.pub")),
            "StrictModes no".into(),
            "UsePAM no".into(),
            "PidFile none".into(),
            "PermitRootLogin yes".into(),
        ];
        std::fs::write(file("sshd_config"), settings.join("\n"))?;
        let mut sshd = cores::anywhere(Path::new(SSHD));
        sshd.args(["-D", "-f", &file("sshd_config")]).stderr(Stdio::null());
        let sshd = Process::silent(&mut sshd)?;
        wait_for(server)?;
        let behind = TcpListener::bind("127.0.0.1:0")?;
        let mut ssh = cores::anywhere(Path::new("ssh"));
        ssh.args(["-N", "-F", "none", "-i", &file("user"), "-o", "StrictHostKeyChecking=no"]);
        ssh.args(["-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"]);
        ssh.args(["-L", &format!("{port}:{}", behind.local_addr()?)]);
        ssh.args(["-p", &server.port().to_string(), &server.ip().to_string()]);
        let client = Process::silent(ssh.stderr(Stdio::null()))?;
        wait_for(port)?;
        // That was a connection, too.
        drop(behind.accept()?);
        Ok(Some(Self { _folder: folder, _server: sshd, _client: client, port, behind }))
    }
}

fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn wait_for(address: SocketAddr) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        if Instant::now() > until {
            bail!("OpenSSH did not start");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
