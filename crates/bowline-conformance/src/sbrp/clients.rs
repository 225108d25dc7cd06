//! Clients that leave, and clients that come twice.

use std::time::Duration;

use bowline_sbrp::control::ControlCode::{Forbidden, SessionEnded};
use tokio::time::sleep;

use super::frame::Frame;
use super::relay::{Pair, Relay};
use super::run_at;
use crate::check::{Check, must};
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-RELAY-12",
        "a client that leaves is told to its daemon, after its last frame",
        "Client gone -> session_ended to the daemon",
        run_at!(left),
    ),
    must(
        "SBRP-RELAY-12b",
        "of a client that left while its daemon was away, the daemon hears nothing",
        "silent if the daemon is offline",
        run_at!(left_unseen),
    ),
    must(
        "SBRP-RELAY-20",
        "a session in use is not taken over: the second client is forbidden",
        "A `sid` in use is not taken over by a second client connection: the second gets forbidden",
        run_at!(taken),
    ),
];

async fn left(relay: &Relay<'_>) -> Ended {
    let Pair { id, mut daemon, mut client } = relay.pair().await?;
    let (session, last) = (client.session, Frame::data(client.session, "my last words"));
    client.send(&last).await?;
    client.leave().await;
    daemon.gets(&last).await?;
    daemon.is_told(SessionEnded, session).await?;
    // Without a goodbye, too.
    let client = relay.paired(&id, &mut daemon).await?;
    let session = client.session;
    client.die();
    daemon.is_told(SessionEnded, session).await?;
    relay.paired(&id, &mut daemon).await.map(drop)
}

async fn left_unseen(relay: &Relay<'_>) -> Ended {
    let (id, client) = relay.paused().await?;
    client.leave().await;
    // It said goodbye; when the relay has dealt with that, nobody can see.
    sleep(DEALT_WITH).await;
    let mut daemon = relay.daemon(&id).await?;
    daemon.is_left_alone("nothing at the daemon, whose client has left").await?;
    relay.paired(&id, &mut daemon).await.map(drop)
}

async fn taken(relay: &Relay<'_>) -> Ended {
    let mut pair = relay.pair().await?;
    let session = pair.client.session;
    relay.client(&pair.id, session).await?.is_refused(Forbidden, 0).await?;
    pair.works().await?;
    // Once it is free it can be had again.
    let Pair { id, mut daemon, client } = pair;
    client.leave().await;
    // The daemon hears of it, or the relay has had time enough.
    daemon.next_within(FREE).await?;
    let client = relay.client(&id, session).await?;
    Pair { id, daemon, client }.works().await
}

/// How long a session of a client that has left may stay in use.
const FREE: Duration = Duration::from_secs(15);
/// How long a relay may take to deal with a goodbye.
const DEALT_WITH: Duration = Duration::from_secs(2);
