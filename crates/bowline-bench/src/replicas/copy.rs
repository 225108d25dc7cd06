//! From SQLite to PostgreSQL: rows a second of `bowline store copy`.

use std::time::Instant;

use anyhow::{Result, ensure};
use bowline_servers::{Flush, Postgres};
use tokio::process::Command;

use crate::report::Report;
use crate::seed;

/// Sessions, and turns of each: two rows of the log a turn.
const SESSIONS: usize = 200;
const TURNS: usize = 250;
const DATABASE: &str = "copied";

pub(super) async fn measure(report: &mut Report) -> Result<()> {
    report.doing("a copy to PostgreSQL (writing 100,000 messages first)");
    let folder = tempfile::tempdir()?;
    seed::sessions(folder.path(), &[TURNS; SESSIONS]).await?;
    let postgres = tokio::task::spawn_blocking(|| {
        let postgres = Postgres::start(Flush::On)?;
        postgres.make_database(DATABASE)?;
        anyhow::Ok(postgres)
    })
    .await??;
    let begun = Instant::now();
    let said = Command::new(std::env::current_exe()?)
        .args(["store", "copy", "--json", "--from"])
        .arg(format!("sqlite:{}", folder.path().display()))
        .args(["--to", &postgres.url(DATABASE)])
        .env("XDG_CONFIG_HOME", folder.path())
        .output()
        .await?;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let took = begun.elapsed().as_secs_f64();
    let rows = postgres.sql(DATABASE, "SELECT count(*) FROM entries")?.parse::<f64>()?;
    ensure!(rows as usize == SESSIONS * TURNS * 2, "{rows} rows arrived");
    report.figure("copy_rows_per_s", rows / took);
    Ok(())
}
