//! Ping, Pong, and connections that are dead.

use std::time::Duration;

use bowline_sbrp::control::ControlCode::{PayloadTooLarge, SessionPaused};
use tokio::time::Instant;

use super::frame::{Frame, PING, PONG, raw};
use super::peer::{Event, PATIENCE};
use super::relay::{Pair, Relay, new_daemon};
use super::run_at;
use crate::check::{Check, must, ours};
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-RELAY-14",
        "a Ping is answered with a Pong of the same payload",
        "Ping answered with Pong, payload copied",
        run_at!(answered),
    ),
    must(
        "SBRP-RELAY-14b",
        "neither Ping nor Pong is forwarded",
        "never forwarded",
        run_at!(not_forwarded),
    ),
    must(
        "SBRP-RELAY-14c",
        "a Ping of more than 8 bytes is payload_too_large",
        "> 8 bytes rejected (payload_too_large)",
        run_at!(too_large),
    ),
    ours(
        "SBRP-RELAY-14d",
        "an idle connection is pinged",
        "the relay pings idle connections (the protocol: MAY)",
        run_at!(pinged),
    )
    .slow(),
    ours(
        "SBRP-RELAY-14e",
        "a daemon that answers nothing counts as gone",
        "and drops dead ones (the protocol: MAY)",
        run_at!(dropped),
    )
    .slow(),
];

async fn answered(relay: &Relay<'_>) -> Ended {
    let Pair { mut daemon, mut client, .. } = relay.pair().await?;
    for payload in [&b""[..], b"1", b"12345678"] {
        for peer in [&mut daemon, &mut client] {
            peer.send(&Frame::new(PING, 0, payload)).await?;
            peer.gets(&Frame::new(PONG, 0, payload)).await?;
        }
    }
    Ok(())
}

async fn not_forwarded(relay: &Relay<'_>) -> Ended {
    let mut pair = relay.pair().await?;
    pair.client.send(&Frame::new(PONG, 0, &b"unasked"[..])).await?;
    pair.daemon.send(&Frame::new(PONG, 0, &b"unasked"[..])).await?;
    pair.works().await?;
    // The other end hears nothing of a Ping; whether it is answered is not this check's.
    let marked = &b"relay?"[..];
    pair.client.send(&Frame::new(PING, 0, marked)).await?;
    let there = Frame::data(pair.client.session, "after a Ping");
    pair.client.send(&there).await?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let expected = format!("at the daemon: {there}, and no Ping of its client before it");
        match pair.daemon.event(deadline).await {
            Some(Event::Frame(frame)) if frame == there => return Ok(()),
            Some(Event::Frame(frame)) if frame.payload == marked => {
                return Err(pair.daemon.wrong(expected, frame.to_string()));
            }
            Some(Event::Frame(_) | Event::Ping) => {}
            other => return Err(pair.daemon.wrong(expected, format!("{other:?}"))),
        }
    }
}

async fn too_large(relay: &Relay<'_>) -> Ended {
    for kind in [PING, PONG] {
        let mut daemon = relay.daemon(&new_daemon()).await?;
        daemon.send_bytes(raw(kind, 9, 0, &[0; 9])).await?;
        daemon.is_refused(PayloadTooLarge, 0).await?;
    }
    Ok(())
}

/// A Ping of SBRP or one of WebSocket.
async fn pinged(relay: &Relay<'_>) -> Ended {
    let mut daemon = relay.daemon(&new_daemon()).await?;
    let deadline = Instant::now() + IDLE;
    let came = match daemon.event(deadline).await {
        Some(Event::Ping) => return Ok(()),
        Some(Event::Frame(frame)) if frame.kind == PING => return Ok(()),
        Some(other) => format!("{other:?}"),
        None => format!("nothing in {} s", IDLE.as_secs()),
    };
    Err(daemon.wrong("a Ping on an idle connection", came))
}

/// The daemon's socket stays open, and nobody reads it: no Ping is answered.
async fn dropped(relay: &Relay<'_>) -> Ended {
    let Pair { daemon, mut client, .. } = relay.pair().await?;
    let told = client.is_told_within(SessionPaused, client.session, DEAD).await;
    drop(daemon);
    told
}

const IDLE: Duration = Duration::from_secs(45);
const DEAD: Duration = Duration::from_secs(75);
