//! More than a relay or an end can take: it is delayed or the connection ends, and nothing is dropped
//! silently.

use std::time::Duration;

use bowline_sbrp::control::ControlCode::Backpressure;
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::frame::{DATA, Frame, HANDSHAKE_INIT, coded};
use super::peer::{FrameOrEnd, PATIENCE, Peer, closed, instead};
use super::relay::{Pair, Relay};
use super::run_at;
use crate::check::{Check, must, ours};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-RELAY-07",
        "too many messages are delayed and told with rate_limited, and none is lost",
        "rate_limited SID 0, not terminal; the offending frame is delayed, not dropped",
        run_at!(limited),
    ),
    must(
        "SBRP-RELAY-08",
        "a client that does not read is closed with backpressure, after a part without gaps",
        "Slow consumer: send buffer over the threshold -> backpressure SID 0 and close; never drop \
         silently",
        run_at!(slow_client),
    ),
    ours(
        "SBRP-RELAY-08b",
        "a daemon that does not read for a moment loses nothing: its clients are held back",
        "Towards a daemon the relay first holds the sending clients back for a bounded time (ours)",
        run_at!(slow_daemon),
    ),
];

/// A frame of this size, with its number in front.
fn numbered(session: u64, number: u32, size: usize) -> Frame {
    let mut payload = vec![0; size];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    Frame::new(DATA, session, payload)
}

/// Reads numbered frames, from this number on, until something else comes.
async fn read_numbered(
    peer: &mut Peer,
    session: u64,
    from: u32,
    to: u32,
    patience: Duration,
) -> Result<(u32, Option<FrameOrEnd>), Stop> {
    let mut expected = from;
    while expected < to {
        match peer.next_within(patience).await? {
            Some(Ok(frame)) if frame.kind == DATA && frame.session == session => {
                let number = frame.payload.get(..4).map_or(u32::MAX, |number| {
                    u32::from_be_bytes(number.try_into().unwrap_or_default())
                });
                if number != expected {
                    let expected = format!("frame {expected} of the flood");
                    return Err(peer.wrong(expected, format!("frame {number}")));
                }
                expected += 1;
            }
            other => return Ok((expected, other)),
        }
    }
    Ok((expected, None))
}

/// Small messages, as fast as the relay takes them, until it says that they are too many. The daemon reads
/// all the time.
async fn limited(relay: &Relay<'_>) -> Ended {
    let Pair { mut daemon, mut client, .. } = relay.pair().await?;
    let session = client.session;
    relay.wire.sent(&format!("client: up to {MESSAGES} messages as fast as they go"), None);
    let begun = Instant::now();
    let last = Frame::new(HANDSHAKE_INIT, session, &b"the last of the flood"[..]);
    let both = async {
        tokio::join!(
            flood(&mut client, &last),
            read_numbered(&mut daemon, session, 0, u32::MAX, PATIENCE)
        )
    };
    let Ok((sent, read)) = timeout(FLOOD, both).await else {
        return Err(Stop::unable(
            "the relay's limit is so low that a flood takes more than a minute",
        ));
    };
    let (sent, (came, end)) = (sent?, read?);
    let is_whole = came == sent && matches!(&end, Some(Ok(frame)) if *frame == last);
    if !is_whole {
        let expected = format!("{sent} messages and the last at the daemon, in order");
        return Err(daemon.wrong(expected, format!("{came}, then {}", instead(end))));
    }
    let took = begun.elapsed();
    // The session goes on, and what the client was told is there before the answer.
    let back = Frame::data(session, "all there");
    daemon.send(&back).await?;
    client.gets(&back).await?;
    if client.limited > 0 {
        return Ok(());
    }
    let seconds = took.as_secs_f64();
    Err(Stop::unable(format!(
        "{sent} messages in {seconds:.1} s went through without reaching the relay's limit"
    )))
}

/// Sends until the relay says that it is too much, and some more. Returns how many, without the last.
async fn flood(client: &mut Peer, last: &Frame) -> Result<u32, Stop> {
    let (mut number, mut most) = (0, MESSAGES);
    let expected = "a relay that delays messages and stays connected";
    while number < most {
        let message = numbered(client.session, number, 32).encode().into();
        if !client.pour(message, PATIENCE).await {
            return Err(client.wrong(expected, format!("it took {number} messages and no more")));
        }
        number += 1;
        if number % 200 == 0 && most == MESSAGES {
            if let Some(Err(code)) = client.next_within(Duration::ZERO).await? {
                return Err(client.wrong(expected, closed(code)));
            }
            if client.limited > 0 {
                most = number + 200;
            }
        }
    }
    client.send(last).await?;
    Ok(number)
}

/// The daemon sends until the relay has given the client up; the client reads nothing before.
async fn slow_client(relay: &Relay<'_>) -> Ended {
    let Pair { id, mut daemon, mut client } = relay.pair().await?;
    let session = client.session;
    relay.wire.sent("daemon: up to 64 MiB to a client that does not read", None);
    let mut sent = 0;
    let given_up = loop {
        if sent == LARGE_FRAMES {
            break false;
        }
        let message = Bytes::from(numbered(session, sent, LARGE).encode());
        if !daemon.pour(message, HELD).await {
            break false;
        }
        sent += 1;
        // It hears that the session has ended, or that it is not there: in whichever words.
        match daemon.next_within(Duration::ZERO).await? {
            None => {}
            Some(Ok(frame)) if frame.code().is_some() && frame.session == session => break true,
            Some(other) => {
                let expected = "a daemon that stays connected while a client does not read";
                return Err(daemon.wrong(expected, instead(Some(other))));
            }
        }
    };
    let (came, end) = read_numbered(&mut client, session, 0, sent, PATIENCE).await?;
    let expected = format!("at the client: {}, then the end", coded(Backpressure, 0));
    let flood = format!("{came} of {sent} frames of 64 KiB without a gap, then");
    match end {
        Some(Ok(frame)) if frame.is(Backpressure, 0) => {
            client.is_closed("after backpressure").await?;
        }
        Some(other) => {
            return Err(client.wrong(expected, format!("{flood} {}", instead(Some(other)))));
        }
        None if came == sent && !given_up => {
            let came = "all of it went through, however long the client read nothing";
            return Err(client.wrong(expected, came));
        }
        None => return Err(client.wrong(expected, format!("{flood} nothing"))),
    }
    // The daemon's other sessions have nothing to do with it. What it is told of this one comes first.
    daemon.read_to_pong().await?;
    relay.paired(&id, &mut daemon).await.map(drop)
}

/// The client sends for two seconds to a daemon that reads nothing; then it reads everything.
async fn slow_daemon(relay: &Relay<'_>) -> Ended {
    let Pair { mut daemon, mut client, .. } = relay.pair().await?;
    let session = client.session;
    relay.wire.sent("client: up to 64 MiB to a daemon that does not read for 2 s", None);
    let (mut sent, until) = (0, Instant::now() + Duration::from_secs(2));
    let mut waiting = None;
    while sent < LARGE_FRAMES && waiting.is_none() {
        let message = Bytes::from(numbered(session, sent, LARGE).encode());
        let left = until.saturating_duration_since(Instant::now());
        if !client.pour(message, left.max(ONE)).await {
            // What was begun is written with the next message.
            waiting = Some(sent);
        }
        sent += 1;
    }
    if waiting.is_none() {
        sleep(until.saturating_duration_since(Instant::now())).await;
    }
    let last = numbered(session, sent, LARGE);
    let (finished, read) = tokio::join!(
        client.pour(last.encode().into(), PATIENCE),
        read_numbered(&mut daemon, session, 0, sent + 1, PATIENCE)
    );
    let (came, end) = read?;
    match finished && came == sent + 1 {
        true => Ok(()),
        false => {
            let expected = format!("all {} frames at the daemon, in order", sent + 1);
            Err(daemon.wrong(expected, format!("{came}, then {}", instead(end))))
        }
    }
}

/// More than a second's worth at any relay that a person would call limited.
const MESSAGES: u32 = 60_000;
const FLOOD: Duration = Duration::from_secs(70);
const LARGE: usize = 65_536;
const LARGE_FRAMES: u32 = 1024;
/// How long a relay may hold a daemon back before it gives a slow client up.
const HELD: Duration = Duration::from_secs(30);
/// How long the relay gets for one message at least, so that a slow machine is not taken for a relay that holds
/// back.
const ONE: Duration = Duration::from_secs(1);
