//! Clients that leave, and clients that come twice.

use std::time::Duration;

use bowline_sbrp::control::ControlCode::{Forbidden, SessionEnded};
use tokio::time::sleep;

use super::frame::Frame;
use super::peer::{Peer, instead};
use super::relay::{Pair, Relay};
use super::run_at;
use crate::check::{Check, must};
use crate::verdict::{Ended, Stop};

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
    let (mut id, mut daemon) = back_after(relay, DEALT_WITH).await?;
    let told = daemon.next_within(MOMENT).await?;
    if told.as_ref().is_some_and(|told| matches!(told, Ok(frame) if frame.is_ending())) {
        // A relay that was slow to deal with the goodbye has its client leave after the daemon was back.
        (id, daemon) = back_after(relay, DEALT_WITH_SLOWLY).await?;
    } else if told.is_some() {
        let expected = "nothing at the daemon, whose client has left";
        return Err(daemon.wrong(expected, instead(told)));
    }
    daemon.is_left_alone("nothing at the daemon, whose client has left").await?;
    relay.paired(&id, &mut daemon).await.map(drop)
}

/// A daemon that is back so long after its client said goodbye. When the relay has dealt with that, nobody can see.
async fn back_after(relay: &Relay<'_>, time: Duration) -> Result<(String, Peer), Stop> {
    let (id, client) = relay.paused().await?;
    client.leave().await;
    sleep(time).await;
    let daemon = relay.daemon(&id).await?;
    Ok((id, daemon))
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
/// The same for one that is slow: shorter than any grace.
const DEALT_WITH_SLOWLY: Duration = Duration::from_secs(10);
/// How long what is told too late may take.
const MOMENT: Duration = Duration::from_secs(1);
