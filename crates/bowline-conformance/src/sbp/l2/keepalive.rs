//! Keep-alive, and frames that nobody knows.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::check::{Check, must, run, should};
use crate::socket::Event;
use crate::trial::Trial;
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L2-17",
        "unknown frames are ignored",
        "Unknown frame types are ignored",
        run!(unknown_frames),
    ),
    should(
        "SBP-L2-17b",
        "an idle surface is pinged, or one that reads nothing is dropped",
        "PING every 30 s; no PONG in 10 s -> drop",
        run!(keep_alive),
    )
    .slow(),
];

async fn unknown_frames(t: &Trial) -> Ended {
    t.shows_live().await?;
    let session = t.session().await?;
    let mut socket = t.attach_desktop(&session).await?;
    socket.send(json!({ "type": "NO_SUCH_FRAME", "with": ["any", { "kind": 1 }] })).await?;
    let text = t.say(&session, "Hello.").await?.text;
    let end = socket.until("TURN_COMPLETE").await?;
    end.holds(!text.is_empty(), "a live turn after a frame that the server does not know")?;
    socket.confirm().await?;
    // A server that closes because of the frame may take longer for that than for the turn. What it says to a
    // DETACH, other checks look at.
    let code = socket.detached().await?;
    let is_refusal = matches!(code, Some(1002 | 1003 | 1007 | 1008 | 4000..));
    let expected = "a close that answers DETACH, and not the frame that the server does not know";
    end.holds(!is_refusal, &format!("{expected}; came close {code:?}"))
}

/// Any sign of life asked for counts: a server may take pongs of WebSocket for answers, so an
/// unanswered `PING` alone is no reason to drop a surface.
async fn keep_alive(t: &Trial) -> Ended {
    let session = t.session().await?;
    let mut socket = t.attach_desktop(&session).await?;
    let mut silent = t.attach_desktop(&t.session().await?).await?;
    // A barrier after the attach is no keep-alive.
    let quiet = Instant::now() + BARRIER;
    let deadline = Instant::now() + INTERVAL;
    while let Some(event) = socket.event(deadline).await {
        let is_ping = match event {
            Event::Ping => true,
            Event::Frame(frame) => frame.kind() == "PING",
            Event::Closed(_) => return Err(Stop::broken("nothing", "an open socket", "its end")),
        };
        if is_ping && Instant::now() > quiet {
            return Ok(());
        }
    }
    // Nothing was read of this one: if the server has dropped it, the end is there.
    while let Some(event) = silent.event(Instant::now() + Duration::from_secs(1)).await {
        if matches!(event, Event::Closed(_)) {
            return Ok(());
        }
    }
    let came = format!("neither in {} s", INTERVAL.as_secs());
    Err(Stop::broken("nothing", "PING, or the end of a socket that reads nothing", came))
}

const BARRIER: Duration = Duration::from_secs(3);
/// The protocol's interval and timeout, and some time on top.
const INTERVAL: Duration = Duration::from_secs(45);
