//! What it costs that a session runs at the other replica than the one that is asked.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::StreamExt;
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message as Packet;

use super::pair::{Pair, ask, owned_by};
use crate::load::quantile;
use crate::pace::{AsyncCall as _, Pace};
use crate::report::Report;
use crate::surfaces::{self, Socket};
use crate::tools::{ToolCaller, device, device_surface};

/// Answers that are followed.
const ANSWERS: usize = 10;
/// The built-in agent's pause between two words, about that of a real model.
const PACE: &str = "20ms";
/// Something to be said word by word.
const WORDS: &str = "echo The quick brown fox jumps over the lazy dog and then it takes a rest by the \
    lake and looks at the boats that come and go with the wind";

/// How much later a surface at the other replica has a chunk than one at the owner.
pub(super) async fn tokens(report: &mut Report) -> Result<()> {
    report.doing("chunks at another replica");
    let pair = Pair::start(&[("BOWLINE_OFFLINE_PACE", PACE)]).await?;
    let mut added = Vec::new();
    for _ in 0..ANSWERS {
        let door = owned_by(&pair.one).await?;
        let here = surfaces::join(pair.one.address, &door).await?;
        let there = surfaces::join(pair.other.address, &door).await?;
        let here = tokio::spawn(arrivals(here));
        let there = tokio::spawn(arrivals(there));
        ask(&pair.one, Some(&door), "bowline/offline", WORDS).await?;
        let (here, there) = (here.await??, there.await??);
        for (offset, at) in &there {
            // Chunks may be joined on the way: those that begin at the same place are compared.
            if let Some(owner) = here.get(offset) {
                added.push(at.saturating_duration_since(*owner));
            }
        }
    }
    ensure!(added.len() > ANSWERS * 10, "only {} chunks can be compared", added.len());
    report.figure("remote_token_added_ms_p50", ms(&mut added, 0.5));
    report.figure("remote_token_added_ms_p99", ms(&mut added, 0.99));
    Ok(())
}

/// When each chunk of the next turn arrives, by its offset.
async fn arrivals(mut socket: Socket) -> Result<HashMap<u64, Instant>> {
    let mut seen = HashMap::new();
    loop {
        let text = match socket.next().await {
            Some(Ok(Packet::Text(text))) => text,
            Some(Ok(_)) => continue,
            other => bail!("unexpected frame during a turn: {other:?}"),
        };
        let now = Instant::now();
        let frame: Value = serde_json::from_str(&text)?;
        match frame["type"].as_str().unwrap_or_default() {
            "TURN_CHUNK" => {
                seen.entry(frame["offset"].as_u64().context("no offset")?).or_insert(now);
            }
            "TURN_COMPLETE" => return Ok(seen),
            _ => {}
        }
    }
}

/// Calls of a tool of a device at the other replica: both ways, from the model to the device and back.
pub(super) async fn tools(report: &mut Report) -> Result<()> {
    report.doing("tool calls of a device at another replica");
    let pair = Pair::start(&[]).await?;
    let door = owned_by(&pair.one).await?;
    let socket = surfaces::attach_as(pair.other.address, &door, device_surface()).await?;
    let devices = tokio::spawn(device(socket));
    let pace = Pace { parallel: 1, rate: 20, length: Duration::from_secs(5) };
    let mut caller = ToolCaller::new(&reqwest::Client::new(), pair.one.address, &door);
    // The first one opens connections.
    caller.call().await?;
    let calls = tokio::select! {
        calls = pace.run(vec![caller]) => calls?,
        ended = devices => {
            let Err(error) = ended?;
            return Err(error);
        }
    };
    let mut both: Vec<_> = calls.iter().map(|legs| legs.out + legs.back).collect();
    report.figure("remote_tool_call_p50_ms", ms(&mut both, 0.5));
    report.figure("remote_tool_call_p99_ms", ms(&mut both, 0.99));
    Ok(())
}

fn ms(values: &mut [Duration], share: f64) -> f64 {
    quantile(values, share).as_secs_f64() * 1e3
}
