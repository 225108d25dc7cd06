//! Who reaches whom, and that everything arrives as it was sent.

use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame as Part;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::frame::{DATA, Frame, HANDSHAKE_ACCEPT, HANDSHAKE_INIT, LONGEST};
use super::peer::Peer;
use super::relay::{Dialed, Pair, Place, Relay, new_daemon, sid};
use super::run_at;
use crate::check::{Check, must};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-RELAY-01",
        "a relay is at /relay and /, with the token in the query or the header",
        "Endpoint fixed path `/relay` (and `/`). By `?token=` or `Authorization: Bearer`",
        run_at!(places),
    ),
    must(
        "SBRP-RELAY-01b",
        "the token alone says who goes where",
        "routing key only from the token",
        run_at!(routing),
    ),
    must(
        "SBRP-RELAY-02",
        "frames go through unmodified and uninspected, in both directions",
        "Forwards 0x01-0x03 unmodified, in order, uninspected",
        run_at!(unmodified),
    ),
    must(
        "SBRP-RELAY-02b",
        "frames arrive in the order in which they were sent, none twice and none lost",
        "Forwards 0x01-0x03 unmodified, in order, uninspected",
        run_at!(in_order),
    ),
    must(
        "SBRP-RELAY-02c",
        "a payload of 65,536 bytes goes through, and so does an empty one",
        "payload <= 65,536",
        run_at!(sizes),
    ),
    must(
        "SBRP-RELAY-02d",
        "a message in several WebSocket fragments is one frame",
        "Binary WebSocket messages, one frame each",
        run_at!(fragments),
    ),
];

async fn places(relay: &Relay<'_>) -> Ended {
    for address in relay.wire.target.relay_places() {
        for place in [Place::Query, Place::Header] {
            let id = new_daemon();
            let token = relay.issuer.token(&relay.issuer.daemon_claims(&id));
            let (dialed, sent) = relay.dial(&address, place, &token).await?;
            let stream = match dialed {
                Dialed::Open(stream) => stream,
                Dialed::Refused(status) => {
                    let expected = "101 for a good token at each path and place";
                    return Err(Stop::broken(sent, expected, format!("status {status}")));
                }
            };
            let mut daemon = Peer::new(*stream, relay.wire.clone(), "daemon", 0, sent);
            relay.paired(&id, &mut daemon).await?;
        }
    }
    Ok(())
}

async fn routing(relay: &Relay<'_>) -> Ended {
    let mut mine = relay.pair().await?;
    let (other_id, session) = (new_daemon(), mine.client.session);
    let mut other = relay.daemon(&other_id).await?;
    // The same session id at another daemon is another session.
    let mut twin = relay.client(&other_id, session).await?;
    let hello = Frame::data(session, "to the other daemon");
    twin.send(&hello).await?;
    other.gets(&hello).await?;
    mine.works().await?;
    // What a request says beside its token counts for nothing.
    let token = relay.issuer.token(&relay.issuer.client_claims(&mine.id, &sid(session ^ 1)));
    let address = format!("{}?did={other_id}&role=daemon&daemon={other_id}", relay.address());
    let (dialed, sent) = relay.dial(&address, Place::Query, &token).await?;
    let Dialed::Open(stream) = dialed else {
        return Err(Stop::broken(sent, "101 for a good token", "a refusal"));
    };
    let mut client = Peer::new(*stream, relay.wire.clone(), "client", session ^ 1, sent);
    let there = Frame::data(session ^ 1, "to the daemon of the token");
    client.send(&there).await?;
    mine.daemon.gets(&there).await
}

/// Of any size and kind: only the ends know what is right.
async fn unmodified(relay: &Relay<'_>) -> Ended {
    let Pair { mut daemon, mut client, .. } = relay.pair().await?;
    let session = client.session;
    let bytes: Vec<u8> = (0..=255).cycle().take(2000).collect();
    for frame in [
        Frame::new(HANDSHAKE_INIT, session, vec![1; 32]),
        Frame::new(HANDSHAKE_INIT, session, &b"too short"[..]),
        Frame::new(DATA, session, bytes.clone()),
        Frame::new(DATA, session, &b"x"[..]),
    ] {
        client.send(&frame).await?;
        daemon.gets(&frame).await?;
    }
    for frame in [
        Frame::new(HANDSHAKE_ACCEPT, session, vec![2; 128]),
        Frame::new(HANDSHAKE_ACCEPT, session, &b"too short"[..]),
        Frame::new(DATA, session, bytes),
        Frame::new(DATA, session, &b"x"[..]),
    ] {
        daemon.send(&frame).await?;
        client.gets(&frame).await?;
    }
    Ok(())
}

async fn in_order(relay: &Relay<'_>) -> Ended {
    let Pair { mut daemon, mut client, .. } = relay.pair().await?;
    let session = client.session;
    let frames = |from: &str| -> Vec<Frame> {
        (0..MANY).map(|n| Frame::data(session, format!("{from} {n}"))).collect()
    };
    let (there, back) = (frames("there"), frames("back"));
    for (there, back) in there.iter().zip(&back) {
        client.send(there).await?;
        daemon.send(back).await?;
    }
    for frame in &there {
        daemon.gets(frame).await?;
    }
    for frame in &back {
        client.gets(frame).await?;
    }
    Ok(())
}

async fn sizes(relay: &Relay<'_>) -> Ended {
    let Pair { mut daemon, mut client, .. } = relay.pair().await?;
    for size in [0, 1, LONGEST] {
        let frame = Frame::new(DATA, client.session, vec![7; size]);
        client.send(&frame).await?;
        daemon.gets(&frame).await?;
        daemon.send(&frame).await?;
        client.gets(&frame).await?;
    }
    Ok(())
}

async fn fragments(relay: &Relay<'_>) -> Ended {
    let mut pair = relay.pair().await?;
    let frame = Frame::data(pair.client.session, "in three fragments");
    let bytes = frame.encode();
    let thirds = [&bytes[..5], &bytes[5..20], &bytes[20..]];
    for (at, third) in thirds.into_iter().enumerate() {
        let kind = if at == 0 { Data::Binary } else { Data::Continue };
        let part = Part::message(third.to_vec(), OpCode::Data(kind), at == 2);
        pair.client.send_message(Message::Frame(part)).await?;
    }
    pair.daemon.gets(&frame).await?;
    pair.works().await
}

/// More than fits into one read of any relay.
const MANY: usize = 300;
