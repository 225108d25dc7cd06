//! nginx as a WebSocket proxy, configured as its manual recommends.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cores;
use super::server::Process;
use crate::report::Report;

#[derive(Debug)]
pub(super) struct Nginx {
    pub(super) process: Process,
    _folder: tempfile::TempDir,
    pub(super) address: SocketAddr,
    /// The listener that nginx forwards to.
    pub(super) behind: TcpListener,
}

impl Nginx {
    /// None if this machine has no nginx.
    pub(super) fn start(report: &Report) -> Result<Option<Self>> {
        let places = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"];
        let Some(program) = places.iter().map(Path::new).find(|path| path.exists()) else {
            report.note("warning: nginx is not installed; the comparison with it is skipped");
            return Ok(None);
        };
        let behind = TcpListener::bind("127.0.0.1:0")?;
        // nginx does not accept port 0: use a port that was just free.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("nginx.conf");
        std::fs::write(&config, settings(address, behind.local_addr()?, folder.path()))?;
        let mut command = cores::measured(program);
        command.arg("-p").arg(folder.path()).arg("-e").arg("stderr").arg("-c").arg(&config);
        let nginx =
            Self { process: Process::silent(&mut command)?, _folder: folder, address, behind };
        let patience = Instant::now() + Duration::from_secs(5);
        while TcpStream::connect(address).is_err() {
            if Instant::now() > patience {
                bail!("nginx did not start");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(nginx))
    }
}

fn settings(listen: SocketAddr, behind: SocketAddr, folder: &Path) -> String {
    let folder = folder.display();
    let kept: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {folder}/{name};\n"))
        .concat();
    format!(
        "daemon off; master_process off; worker_processes 1; pid {folder}/pid;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n access_log off;\n {kept}\
         server {{ listen {listen};\n location / {{\n\
         proxy_pass http://{behind}; proxy_http_version 1.1;\n\
         proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection \"upgrade\";\n\
         }} }} }}\n"
    )
}

/// Answers the upgrade that nginx passes on.
pub(super) fn accept(behind: &TcpListener) -> Result<TcpStream> {
    let (mut stream, _) = behind.accept().context("no connection arrived through nginx")?;
    stream.set_nodelay(true)?;
    super::wire::answer_upgrade(&mut stream)?;
    Ok(stream)
}
