//! Start on a large database after a crash (G13).

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bowline_store::sqlite::FILE;

use crate::gateway_process::Gateway;
use crate::load::ServerUnderLoad;
use crate::report::Report;
use crate::{load, mock, seed};

/// Turns of each seeded session.
const TURNS: usize = 1000;
/// Sessions that are written before the size of the database is checked.
const SESSIONS: usize = 10;
/// Starts, each after a kill -9.
const STARTS: usize = 5;
/// How long the gateway is under load before it is killed.
const LOAD: Duration = Duration::from_millis(500);

/// Start to ready on a database of at least that many megabytes.
pub(crate) async fn ready(upstream: SocketAddr, megabytes: u64, report: &mut Report) -> Result<()> {
    report.doing(&format!("start to ready on {megabytes} MB (writing them first)"));
    let folder = tempfile::tempdir()?;
    while size(folder.path()) < megabytes * 1_000_000 {
        seed::sessions(folder.path(), &[TURNS; SESSIONS]).await?;
    }
    let (mut times, mut recovered) = (Vec::new(), 0);
    // A slow model: turns that end at once would never be interrupted.
    let body = load::body(mock::THINKER, Some("{}"), false);
    let mut gateway = Gateway::start(folder.path(), upstream).await?;
    for _ in 0..STARTS {
        let (server, body) = (ServerUnderLoad::at(gateway.address)?, body.clone());
        let callers = tokio::spawn(async move {
            // Fails when the gateway is killed.
            let _ = load::requests(&server, &body, 2 * LOAD).await;
        });
        tokio::time::sleep(LOAD).await;
        gateway.kill().await?;
        callers.await?;
        let begun = Instant::now();
        gateway = Gateway::start(folder.path(), upstream).await?;
        // `/readyz` writes to the store: proves that the gateway is really ready.
        reqwest::get(format!("http://{}/readyz", gateway.address)).await?.error_for_status()?;
        times.push(begun.elapsed());
        recovered += gateway.recovered;
    }
    ensure!(recovered > 0, "no turn was interrupted, so recovery was not measured");
    let name = if megabytes == 1000 { "1gb".to_owned() } else { format!("{megabytes}mb") };
    report.figure(&format!("ready_ms_{name}"), load::median(&mut times).as_secs_f64() * 1e3);
    report.figure(&format!("ready_taken_up_{name}"), recovered as f64);
    Ok(())
}

fn size(folder: &Path) -> u64 {
    folder.join(FILE).metadata().map_or(0, |file| file.len())
}
