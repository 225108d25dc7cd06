//! What the audit costs: turns a second with it, over those without it, in the same run.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use crate::gateway_process::Gateway;
use crate::load::{self, ServerUnderLoad};
use crate::report::Report;
use crate::rounds;

const ROUNDS: usize = 5;

/// Every turn makes a session of its own: so each has an entry in the audit, which is more than most
/// turns have.
pub(crate) async fn run(mock: SocketAddr, length: Duration, report: &mut Report) -> Result<()> {
    let folders = (tempfile::tempdir()?, tempfile::tempdir()?);
    let on = Gateway::start(folders.0.path(), mock).await?;
    let off = [("BOWLINE_AUDIT_ENABLED", "false")];
    let off = Gateway::start_with(folders.1.path(), mock, &off).await?;
    let body = load::body("bench", Some("{}"), false);
    let (with, without) = (ServerUnderLoad::at(on.address)?, ServerUnderLoad::at(off.address)?);
    let (mut recorded, mut bare) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        report.doing(&format!("audit, round {round} of {ROUNDS}"));
        recorded.push(load::requests(&with, &body, length / 2).await?);
        bare.push(load::requests(&without, &body, length / 2).await?);
    }
    report.ratio("audit_vs_off", rounds::ratio(&recorded, &bare));
    report.figure("turns_with_audit_per_s", rounds::middle(&mut recorded));
    Ok(())
}
