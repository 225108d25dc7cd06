//! The owner of a session is killed while its agent speaks; the other replica goes on.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures_util::StreamExt;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message as Packet;

use super::pair::{Pair, owned_by};
use crate::gateway_process::Gateway;
use crate::report::Report;
use crate::surfaces::{self, Door};

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// An answer that takes some seconds.
const WORDS: usize = 400;

pub(super) async fn measure(report: &mut Report) -> Result<()> {
    report.doing("a take-over");
    let pair = Pair::start(&[("BOWLINE_OFFLINE_PACE", "20ms")]).await?;
    let (owner, heir) = (pair.another("owner").await?, &pair.other);
    let door = owned_by(&owner).await?;
    let url = format!("http://{}/v1/chat/completions", owner.address);
    let words = vec!["word"; WORDS].join(" ");
    let body = json!({
        "model": "bowline/offline", "sbp": { "session_id": door.id },
        "messages": [{ "role": "user", "content": format!("echo {words}") }],
    });
    // It breaks when the owner is killed.
    let asked = tokio::spawn(reqwest::Client::new().post(url).json(&body).send());
    next_chunk(heir, &door, PATIENCE).await?;
    let killed = Instant::now();
    owner.kill().await?;
    next_chunk(heir, &door, PATIENCE).await?;
    report.figure("takeover_ms", killed.elapsed().as_secs_f64() * 1e3);
    asked.abort();
    Ok(())
}

/// Waits until the text of the running turn grows at a replica, and attaches again as often as it has to. One
/// chunk alone may be what was said before the owner was killed.
async fn next_chunk(gateway: &Gateway, door: &Door, patience: Duration) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        let Ok(mut socket) = surfaces::attach(gateway.address, door).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut chunks = 0;
        while let Ok(Some(Ok(packet))) = tokio::time::timeout(patience, socket.next()).await {
            if let Packet::Text(text) = packet {
                chunks += usize::from(text.starts_with(r#"{"type":"TURN_CHUNK""#));
            }
            if chunks == 2 {
                return Ok(());
            }
        }
    }
    bail!("no text came within {patience:?}")
}
