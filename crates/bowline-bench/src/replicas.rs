//! Two gateways on one PostgreSQL and one Redis, with the load on the same machine.

mod copy;
mod follow;
mod pair;
mod pgbench;
mod restart;
mod takeover;

use std::time::Duration;

use anyhow::{Result, bail};

use self::pair::Pair;
use crate::load::{self, ServerUnderLoad};
use crate::report::Report;
use crate::rounds;

const ROUNDS: usize = 3;
const PARTS: [&str; 6] = ["turns", "tokens", "tools", "takeover", "restart", "copy"];

/// Runs the named parts, or all.
pub async fn run(length: Duration, only: &[String], report: &mut Report) -> Result<()> {
    if let Some(unknown) = only.iter().find(|part| !PARTS.contains(&part.as_str())) {
        bail!("there is no part `{unknown}`; the parts are {}", PARTS.join(", "));
    }
    let wanted = |part: &str| only.is_empty() || only.iter().any(|o| o == part);
    if wanted("turns") {
        turns(length, report).await?;
    }
    if wanted("tokens") {
        follow::tokens(report).await?;
    }
    if wanted("tools") {
        follow::tools(report).await?;
    }
    if wanted("takeover") {
        takeover::measure(report).await?;
    }
    if wanted("restart") {
        restart::measure(report).await?;
    }
    if wanted("copy") {
        copy::measure(report).await?;
    }
    Ok(())
}

/// Durable turns a second at both gateways, beside pgbench that writes the rows of a turn.
async fn turns(length: Duration, report: &mut Report) -> Result<()> {
    let pair = Pair::start(&[]).await?;
    let body = load::body("bench", Some("{}"), false);
    let servers =
        [ServerUnderLoad::at(pair.one.address)?, ServerUnderLoad::at(pair.other.address)?];
    let round = length / (2 * ROUNDS as u32);
    pgbench::prepare(&pair)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for number in 1..=ROUNDS {
        report.doing(&format!("turns beside pgbench, round {number} of {ROUNDS}"));
        let (first, second) = tokio::join!(
            load::requests(&servers[0], &body, round),
            load::requests(&servers[1], &body, round)
        );
        ours.push(first? + second?);
        theirs.push(pgbench::transactions(&pair, round)?);
    }
    report.ratio("turns_vs_pgbench", rounds::ratio(&ours, &theirs));
    report.figure("replica_turns_per_s", rounds::middle(&mut ours));
    report.figure("pgbench_per_s", rounds::middle(&mut theirs));
    Ok(())
}
