//! The end of the grace period. How long it is, is the relay's own configuration; the default is 30 s.

use std::time::Duration;

use bowline_sbrp::control::ControlCode::{SessionExpired, SessionPending};

use super::relay::Relay;
use super::run_at;
use crate::check::{Check, must};
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-RELAY-10c",
        "when the grace is over, a paused session ends with session_expired",
        "Grace over, in paused or pending -> session_expired, close",
        run_at!(paused),
    )
    .slow(),
    must(
        "SBRP-RELAY-10d",
        "when the grace is over, a session whose daemon never says `ready` ends, too",
        "Grace over, in paused or pending -> session_expired, close",
        run_at!(pending),
    )
    .slow(),
];

async fn paused(relay: &Relay<'_>) -> Ended {
    let (_, mut client) = relay.paused().await?;
    client.is_refused_within(SessionExpired, client.session, GRACE).await
}

async fn pending(relay: &Relay<'_>) -> Ended {
    let (id, mut client) = relay.paused().await?;
    let mut daemon = relay.daemon(&id).await?;
    client.is_told(SessionPending, client.session).await?;
    let session = client.session;
    // The daemon may be told that the session has ended. It stays.
    daemon.beside(client.is_refused_within(SessionExpired, session, GRACE)).await?;
    relay.paired(&id, &mut daemon).await.map(drop)
}

/// The default of the protocol, twice: a longer grace makes these checks fail, and the report says so.
const GRACE: Duration = Duration::from_secs(60);
