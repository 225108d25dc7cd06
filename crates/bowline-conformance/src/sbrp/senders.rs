//! Who may send what.

use bowline_sbrp::control::ControlCode::{DisallowedSender, SessionNotFound};

use super::frame::{CONTROL, Frame, HANDSHAKE_ACCEPT, HANDSHAKE_INIT};
use super::relay::{Pair, Relay};
use super::run_at;
use crate::check::{Check, must};
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-RELAY-04",
        "a signal of a client is disallowed_sender",
        "Signal from a client -> disallowed_sender",
        run_at!(signal),
    ),
    must(
        "SBRP-RELAY-04b",
        "a control frame of either end is disallowed_sender",
        "Control from anyone -> disallowed_sender",
        run_at!(control),
    ),
    must(
        "SBRP-RELAY-04c",
        "a daemon sends no HandshakeInit, and a client no HandshakeAccept",
        "HandshakeInit from a daemon, HandshakeAccept from a client -> disallowed_sender",
        run_at!(handshake),
    ),
    must(
        "SBRP-RELAY-06",
        "a client that names another session is told session_not_found, and reaches nobody",
        "A client frame whose SID differs from its token's `sid` -> session_not_found",
        run_at!(session),
    ),
];

/// A client's frame is refused, and its daemon hears nothing of it.
async fn client_may_not(relay: &Relay<'_>, frame: impl Fn(u64) -> Frame) -> Ended {
    let Pair { id, mut daemon, mut client } = relay.pair().await?;
    let session = client.session;
    client.send(&frame(session)).await?;
    client.is_refused(DisallowedSender, session).await?;
    relay.paired(&id, &mut daemon).await.map(drop)
}

/// A daemon's frame is refused.
async fn daemon_may_not(relay: &Relay<'_>, frame: impl Fn(u64) -> Frame) -> Ended {
    let Pair { mut daemon, client, .. } = relay.pair().await?;
    daemon.send(&frame(client.session)).await?;
    daemon.is_refused(DisallowedSender, client.session).await
}

async fn signal(relay: &Relay<'_>) -> Ended {
    for signal in [[0, 0], [1, 0]] {
        client_may_not(relay, |session| Frame::signal(session, signal)).await?;
    }
    Ok(())
}

async fn control(relay: &Relay<'_>) -> Ended {
    let paused = |session| Frame::new(CONTROL, session, vec![0x10, 0x01]);
    client_may_not(relay, paused).await?;
    daemon_may_not(relay, paused).await
}

async fn handshake(relay: &Relay<'_>) -> Ended {
    client_may_not(relay, |session| Frame::new(HANDSHAKE_ACCEPT, session, vec![0; 128])).await?;
    daemon_may_not(relay, |session| Frame::new(HANDSHAKE_INIT, session, vec![0; 32])).await
}

async fn session(relay: &Relay<'_>) -> Ended {
    let Pair { id, mut daemon, mut client } = relay.pair().await?;
    let other = relay.paired(&id, &mut daemon).await?;
    client.send(&Frame::data(other.session, "as somebody else")).await?;
    client.is_refused(SessionNotFound, other.session).await?;
    Pair { id, daemon, client: other }.works().await
}
