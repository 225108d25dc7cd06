//! The owner of a session is killed while its agent speaks; the other replica goes on.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message as Packet;

use super::pair::{Pair, owned_by};
use crate::report::Report;
use crate::surfaces::{self, Door, Socket};

/// How often; the longest counts.
const TIMES: usize = 3;
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// An answer of ten seconds.
const PACE: &str = "20ms";
const WORDS: usize = 500;
/// The text in bytes that was said when the owner is killed. A chunk that ends before is of a new attempt,
/// which begins at the start.
const SAID: u64 = 500;

pub(super) async fn measure(report: &mut Report) -> Result<()> {
    report.doing("take-overs");
    let mut longest = Duration::ZERO;
    for _ in 0..TIMES {
        longest = longest.max(take_over().await?);
    }
    report.figure("takeover_ms", longest.as_secs_f64() * 1e3);
    Ok(())
}

/// From the end of the owner to the first new text at another replica.
async fn take_over() -> Result<Duration> {
    let pair = Pair::start(&[("BOWLINE_OFFLINE_PACE", PACE)]).await?;
    let (owner, heir) = (pair.another("owner").await?, &pair.other);
    let door = owned_by(&owner).await?;
    let url = format!("http://{}/v1/chat/completions", owner.address);
    let words = vec!["word"; WORDS].join(" ");
    let body = json!({
        "model": "bowline/offline", "sbp": { "session_id": door.id },
        "messages": [{ "role": "user", "content": format!("echo {words}") }],
    });
    let mut socket = surfaces::attach(heir.address, &door).await?;
    // It breaks when the owner is killed.
    let asked = tokio::spawn(reqwest::Client::new().post(url).json(&body).send());
    let said = async {
        while next_chunk(&mut socket).await.context("no text")? < SAID {}
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, said).await??;
    owner.kill().await?;
    let killed = Instant::now();
    let anew = new_attempt(heir.address, &door, socket);
    let Ok(()) = tokio::time::timeout(PATIENCE, anew).await else {
        bail!("no new text came within {PATIENCE:?}")
    };
    let took = killed.elapsed();
    asked.abort();
    Ok(took)
}

/// Waits for text of a new attempt, and attaches again as often as it has to.
async fn new_attempt(address: SocketAddr, door: &Door, mut socket: Socket) {
    loop {
        while let Some(end) = next_chunk(&mut socket).await {
            if end < SAID {
                return;
            }
        }
        while surfaces::attach(address, door).await.map(|fresh| socket = fresh).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Where the next chunk ends; none if the socket does.
async fn next_chunk(socket: &mut Socket) -> Option<u64> {
    loop {
        let Packet::Text(text) = socket.next().await?.ok()? else { continue };
        let frame: Value = serde_json::from_str(&text).ok()?;
        if frame["type"] == "TURN_CHUNK" {
            return Some(frame["offset"].as_u64()? + frame["delta"].as_str()?.len() as u64);
        }
    }
}
