//! The latency that the gateway adds to a whole turn.
//!
//! The upstream behaves like a real one: TLS, and a delay before the first token. A client that
//! calls it directly alternates with one that calls the gateway. Callers start one after the other,
//! so that the turns are in different stages: in step they would measure the handling of bursts.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use reqwest::Certificate;
use tokio::task::JoinSet;

use crate::gateway_process::Gateway;
use crate::load::{PARALLEL, ServerUnderLoad};
use crate::report::Report;
use crate::{load, mock, rounds};

const ROUNDS: usize = 5;
/// Turns of each caller in a round.
const TURNS: usize = 4;

pub(crate) async fn turns(report: &mut Report) -> Result<()> {
    report.doing("time added to a turn");
    let (folder, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let file = folder.path().join("certificate.pem");
    let upstream = mock::Process::start_with_tls(&file).await?;
    let gateway = Gateway::start_with_tls(data.path(), upstream.address, &file).await?;
    let certificate = Certificate::from_pem(&std::fs::read(&file)?)?;
    let (bare, ours) = (
        ServerUnderLoad::with_tls(upstream.address, certificate)?,
        ServerUnderLoad::at(gateway.address)?,
    );
    let plain = load::body(mock::PENSIVE, None, true);
    let tracked = load::body(mock::PENSIVE, Some("{}"), true);
    // Real clients reuse connections: all are opened before the first round.
    for (server, body) in [(&bare, &plain), (&ours, &tracked)] {
        whole_turns(server, body, 1).await.context("no turn over TLS")?;
    }
    let (mut middles, mut added, mut spread) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        report.doing(&format!("time added to a turn, round {round} of {ROUNDS}"));
        let mut direct = whole_turns(&bare, &plain, TURNS).await?;
        let through = whole_turns(&ours, &tracked, TURNS).await?;
        let middle = rounds::middle(&mut direct);
        middles.push(middle);
        added.extend(through.iter().map(|took| took - middle));
        spread.extend(direct.iter().map(|took| took - middle));
    }
    report.figure("turn_added_ms_p50", rounds::quantile(&mut added, 0.5));
    report.figure("turn_added_ms_p99", rounds::quantile(&mut added, 0.99));
    report.figure("turn_direct_ms_p50", rounds::middle(&mut middles));
    // The same difference without a gateway: this much of the 99th percentile is noise.
    report.figure("turn_direct_spread_ms_p99", rounds::quantile(&mut spread, 0.99));
    Ok(())
}

/// Milliseconds from the request to the end of the stream, for each turn of [`PARALLEL`] callers.
async fn whole_turns(server: &ServerUnderLoad, body: &str, turns: usize) -> Result<Vec<f64>> {
    let apart = mock::PENSIVE_THINKING / PARALLEL as u32;
    let mut callers = JoinSet::new();
    for caller in 0..PARALLEL as u32 {
        let (server, body) = (server.clone(), body.to_owned());
        callers.spawn(async move {
            tokio::time::sleep(apart * caller).await;
            let mut times = Vec::with_capacity(turns);
            for _ in 0..turns {
                let asked = Instant::now();
                let stream = server.ask(&body).await?;
                times.push(milliseconds(asked.elapsed()));
                ensure!(stream.ends_with(mock::DONE), "a stream ended early: {stream}");
            }
            anyhow::Ok(times)
        });
    }
    let mut times = Vec::with_capacity(PARALLEL * turns);
    while let Some(ended) = callers.join_next().await {
        times.extend(ended??);
    }
    Ok(times)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
