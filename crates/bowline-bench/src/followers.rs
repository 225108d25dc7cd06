//! A live turn with many attached surfaces, compared with one attached surface.
//!
//! Each round uses two new sessions, so that no history grows. Frames are parsed after the clock
//! has stopped: sixteen readers share the cores with the gateway.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bowline_sbp::frame::ServerFrame;
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::{Message as Packet, Utf8Bytes};

use crate::gateway_process::Gateway;
use crate::report::Report;
use crate::surfaces::{self, Door, Socket};
use crate::{mock, rounds, seed};

const ROUNDS: usize = 15;
const MANY: usize = 16;

pub(crate) async fn run(mock: SocketAddr, report: &mut Report) -> Result<()> {
    report.doing("surfaces that follow a live turn");
    let folder = tempfile::tempdir()?;
    // Two more for a warm-up round: the very first turn connects to the upstream.
    let doors = seed::sessions(folder.path(), &[0; 2 * (ROUNDS + 1)]).await?;
    let gateway = Gateway::start(folder.path(), mock).await?;
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for pair in doors.chunks_exact(2) {
        one.push(turn(gateway.address, &pair[0], 1).await?.as_secs_f64());
        many.push(turn(gateway.address, &pair[1], MANY).await?.as_secs_f64());
    }
    let (one, many) = (&mut one[1..], &mut many[1..]);
    report.ratio("followers_16_vs_1", rounds::ratio(many, one));
    report.figure("followers_1_ms", rounds::middle(one) * 1e3);
    report.figure("followers_16_ms", rounds::middle(many) * 1e3);
    Ok(())
}

/// The time from one surface's message until all surfaces have received the end of the turn.
async fn turn(address: SocketAddr, door: &Door, followers: usize) -> Result<Duration> {
    let mut asking = surfaces::join(address, door).await?;
    let mut others = JoinSet::new();
    for _ in 1..followers {
        others.spawn(follow(surfaces::join(address, door).await?));
    }
    let message = json!({
        "type": "USER_MESSAGE", "content": "Tell me all about foxes.", "client_turn_id": "bench-1",
        "model": mock::TALKATIVE,
    });
    let begun = Instant::now();
    asking.send(Packet::text(message.to_string())).await?;
    let mut seen = vec![follow(asking).await?];
    while let Some(followed) = others.join_next().await {
        seen.push(followed??);
    }
    let last =
        seen.iter().map(|followed| followed.ended).max().context("no surface received the turn")?;
    for followed in &seen {
        let words = followed.text()?.matches(mock::WORD).count() + 1;
        ensure!(words == mock::TALKATIVE_WORDS, "a surface received {words} words of the turn");
    }
    Ok(last - begun)
}

/// The frames that a surface received until the end of the turn, and when that was.
struct Followed {
    frames: Vec<Utf8Bytes>,
    ended: Instant,
}

async fn follow(mut socket: Socket) -> Result<Followed> {
    let mut frames = Vec::new();
    loop {
        match socket.next().await {
            Some(Ok(Packet::Text(text))) => {
                let over = text.starts_with(r#"{"type":"TURN_COMPLETE""#);
                // These mean that there is no live turn: no TURN_COMPLETE would follow.
                let otherwise = [r#"{"type":"TURN_FAILED""#, r#"{"type":"TETHER_TURN""#];
                if otherwise.iter().any(|start| text.starts_with(start)) {
                    bail!("expected a live turn, received {text}");
                }
                frames.push(text);
                if over {
                    return Ok(Followed { frames, ended: Instant::now() });
                }
            }
            Some(Ok(_)) => {}
            other => bail!("unexpected frame during a turn: {other:?}"),
        }
    }
}

impl Followed {
    /// The turn's text, assembled from its chunks.
    fn text(&self) -> Result<String> {
        let mut text = String::new();
        for frame in &self.frames {
            if let ServerFrame::TurnChunk { offset, delta, .. } = serde_json::from_str(frame)? {
                let offset = usize::try_from(offset)?;
                ensure!(text.is_char_boundary(offset), "a chunk at offset {offset} leaves a gap");
                text.truncate(offset);
                text.push_str(&delta);
            }
        }
        Ok(text)
    }
}
