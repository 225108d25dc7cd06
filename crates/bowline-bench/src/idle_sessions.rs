//! The memory per session after its actor has ended.
//!
//! Some sessions are used before the first measurement, too: what the first load allocates
//! (connections, the database's cache, spare pages of the allocator) belongs to no session. Both
//! measurements are taken after every actor has ended and every connection is closed.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use crate::gateway_process::Gateway;
use crate::load::{self, ServerUnderLoad};
use crate::report::Report;

const SESSIONS: usize = 20_000;
/// Sessions that are used before the first measurement; more than the limit of idle actors.
const BEFORE: usize = 2_000;
/// An idle actor ends after 30 s; memory measured before that includes actors.
const ACTORS_END: Duration = Duration::from_secs(35);

pub(crate) async fn run(mock: SocketAddr, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let gateway = Gateway::start(folder.path(), mock).await?;
    let before = memory_after(&gateway, BEFORE, report).await?;
    let after = memory_after(&gateway, SESSIONS, report).await?;
    report.figure("idle_session_bytes", (after - before) / SESSIONS as f64);
    report.figure("idle_sessions_before_mb", before / 1e6);
    report.figure("idle_sessions_after_mb", after / 1e6);
    Ok(())
}

/// Resident memory after one turn each in that many new sessions, when all actors have ended.
async fn memory_after(gateway: &Gateway, sessions: usize, report: &Report) -> Result<f64> {
    report.doing(&format!("memory of idle sessions (one turn each in {sessions} of them first)"));
    let body = load::body("bench", Some("{}"), false);
    // The client and its connections are dropped before memory is measured.
    load::requests_in_all(&ServerUnderLoad::at(gateway.address)?, &body, sessions).await?;
    let wait = ACTORS_END.as_secs();
    report.doing(&format!("memory of idle sessions (waiting {wait} s until their actors end)"));
    tokio::time::sleep(ACTORS_END).await;
    gateway.memory()
}
