//! A daemon that goes and comes back.

use bowline_sbrp::control::ControlCode::{
    DaemonNotFound, DaemonOffline, SessionExpired, SessionNotFound, SessionPaused, SessionPending,
    SessionResumed,
};
use serde_json::json;

use super::frame::{Frame, PING, PONG};
use super::peer::{FrameOrEnd, PATIENCE, Peer, instead};
use super::relay::{Pair, Relay, new_daemon, new_session};
use super::run_at;
use crate::check::{Check, must, ours};
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-RELAY-09",
        "each client of a daemon that is gone is told session_paused, and stays",
        "Daemon gone -> session_paused to each client",
        run_at!(paused),
    ),
    must(
        "SBRP-RELAY-10",
        "a resumable daemon that is back makes its sessions pending, and `ready` resumes them",
        "Resumable daemon back in grace -> session_pending; session_resumed only after its \
         Signal(ready)",
        run_at!(resumed),
    ),
    must(
        "SBRP-RELAY-10b",
        "`close` ends a pending session",
        "Signal(close) -> session_expired to the client, pairing closed",
        run_at!(closed_while_pending),
    ),
    ours(
        "SBRP-RELAY-10e",
        "a daemon that speaks in a session before its `ready` is told session_not_found",
        "towards a daemon, session_not_found for one session is sent without closing (settled by us)",
        run_at!(early),
    ),
    must(
        "SBRP-RELAY-11",
        "a daemon that cannot resume ends its sessions when it is back",
        "Non-resumable daemon back -> session_expired to all paired clients at once",
        run_at!(not_resumable),
    ),
    must(
        "SBRP-RELAY-13",
        "a client of a daemon that is away is told daemon_offline, and makes no session",
        "Client connects while the daemon is offline -> daemon_offline, close, no pairing",
        run_at!(offline),
    ),
    must(
        "SBRP-RELAY-18",
        "a newer connection of a daemon replaces the older, and its sessions go on",
        "a newer one replaces the older (which is closed), and the sessions go paused -> pending as \
         on a reconnect",
        run_at!(replaced),
    ),
    must(
        "SBRP-RELAY-19",
        "what a client sends in a pause is never dropped silently",
        "MUST NOT silently drop forwarded frames; a client frame that arrives in paused or pending is \
         discarded, and the client is told so",
        run_at!(never_silently),
    ),
    ours(
        "SBRP-RELAY-19b",
        "each frame in a pause is discarded, and told with another session_paused or session_pending",
        "the client is told so by another session_paused / session_pending (settled by us)",
        run_at!(discarded),
    ),
];

async fn paused(relay: &Relay<'_>) -> Ended {
    let Pair { id, mut daemon, mut client } = relay.pair().await?;
    let mut other = relay.paired(&id, &mut daemon).await?;
    daemon.leave().await;
    client.is_told(SessionPaused, client.session).await?;
    other.is_told(SessionPaused, other.session).await?;
    client.is_left_alone("an open connection to a paused client").await?;
    // Without a goodbye, too.
    let Pair { daemon, mut client, .. } = relay.pair().await?;
    daemon.die();
    client.is_told(SessionPaused, client.session).await
}

/// The daemon is back, and its client knows.
async fn back(
    relay: &Relay<'_>,
    id: &str,
    client: &mut Peer,
) -> Result<Peer, crate::verdict::Stop> {
    let daemon = relay.daemon(id).await?;
    client.is_told(SessionPending, client.session).await?;
    Ok(daemon)
}

async fn resumed(relay: &Relay<'_>) -> Ended {
    let (id, mut client) = relay.paused().await?;
    let mut daemon = back(relay, &id, &mut client).await?;
    client.is_left_alone("no session_resumed before the daemon's `ready`").await?;
    daemon.send(&Frame::signal(client.session, [0, 0])).await?;
    client.is_told(SessionResumed, client.session).await?;
    Pair { id, daemon, client }.works().await
}

async fn closed_while_pending(relay: &Relay<'_>) -> Ended {
    let (id, mut client) = relay.paused().await?;
    let mut daemon = back(relay, &id, &mut client).await?;
    daemon.send(&Frame::signal(client.session, [1, 1])).await?;
    client.is_refused(SessionExpired, client.session).await?;
    relay.paired(&id, &mut daemon).await.map(drop)
}

async fn early(relay: &Relay<'_>) -> Ended {
    let (id, mut client) = relay.paused().await?;
    let mut daemon = back(relay, &id, &mut client).await?;
    daemon.send(&Frame::data(client.session, "too early")).await?;
    daemon.is_told(SessionNotFound, client.session).await?;
    daemon.send(&Frame::signal(client.session, [0, 0])).await?;
    client.is_told(SessionResumed, client.session).await?;
    Pair { id, daemon, client }.works().await
}

async fn not_resumable(relay: &Relay<'_>) -> Ended {
    let (id, mut client) = relay.paused().await?;
    let mut daemon = relay.daemon_with(&id, json!({ "scp": [] })).await?;
    client.is_refused(SessionExpired, client.session).await?;
    relay.paired(&id, &mut daemon).await.map(drop)
}

async fn offline(relay: &Relay<'_>) -> Ended {
    let (id, _paused) = relay.paused().await?;
    let session = new_session();
    relay.client(&id, session).await?.is_refused(DaemonOffline, session).await?;
    // A daemon that never came may be known to the relay's control plane, or not.
    let (id, session) = (new_daemon(), new_session());
    let mut client = relay.client(&id, session).await?;
    match client.next_within(PATIENCE).await? {
        Some(Ok(told)) if told.is(DaemonOffline, session) || told.is(DaemonNotFound, session) => {}
        other => {
            let expected =
                "at the client: daemon_offline or daemon_not_found, of a daemon that never came";
            return Err(client.wrong(expected, instead(other)));
        }
    }
    client.is_closed("after that").await?;
    // It left nothing behind: the daemon's next client is the first.
    let mut daemon = relay.daemon(&id).await?;
    relay.paired(&id, &mut daemon).await.map(drop)
}

async fn replaced(relay: &Relay<'_>) -> Ended {
    let Pair { id, mut daemon, mut client } = relay.pair().await?;
    let mut newer = relay.daemon(&id).await?;
    daemon.is_closed("when a newer one of the same daemon is there").await?;
    client.is_told(SessionPaused, client.session).await?;
    client.is_told(SessionPending, client.session).await?;
    newer.send(&Frame::signal(client.session, [0, 0])).await?;
    client.is_told(SessionResumed, client.session).await?;
    Pair { id, daemon: newer, client }.works().await
}

async fn never_silently(relay: &Relay<'_>) -> Ended {
    let (id, mut client) = relay.paused().await?;
    let sent = Frame::data(client.session, "sent in a pause");
    client.send(&sent).await?;
    // Told by a code, or kept until the daemon is back. Whatever the code, it comes before what comes later.
    client.send(&Frame::new(PING, 0, &b"and?"[..])).await?;
    let is_pong = |came: &FrameOrEnd| matches!(came, Ok(frame) if frame.kind == PONG);
    if client.next_within(PATIENCE).await?.is_some_and(|came| !is_pong(&came)) {
        return Ok(());
    }
    let mut daemon = relay.daemon(&id).await?;
    // A relay that answers a Ping out of turn may tell it only now.
    match client.next_within(PATIENCE).await? {
        Some(Ok(frame)) if frame.is(SessionPending, client.session) => {}
        Some(Ok(frame)) if frame.is(SessionPaused, client.session) => return Ok(()),
        other => {
            let expected = "at the client: session_pending, or that its frame was discarded";
            return Err(client.wrong(expected, instead(other)));
        }
    }
    daemon.send(&Frame::signal(client.session, [0, 0])).await?;
    client.is_told(SessionResumed, client.session).await?;
    daemon.gets(&sent).await
}

async fn discarded(relay: &Relay<'_>) -> Ended {
    let (id, mut client) = relay.paused().await?;
    for _ in 0..20 {
        client.send(&Frame::data(client.session, "discarded")).await?;
        client.is_told(SessionPaused, client.session).await?;
    }
    let mut daemon = back(relay, &id, &mut client).await?;
    client.send(&Frame::data(client.session, "discarded, too")).await?;
    client.is_told(SessionPending, client.session).await?;
    daemon.send(&Frame::signal(client.session, [0, 0])).await?;
    client.is_told(SessionResumed, client.session).await?;
    Pair { id, daemon, client }.works().await
}
