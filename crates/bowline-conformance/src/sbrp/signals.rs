//! What a daemon's signals do to its sessions. What `ready` does after a pause is in [`super::presence`].

use bowline_sbrp::control::ControlCode::{MalformedFrame, SessionExpired};

use super::frame::{Frame, SIGNAL};
use super::relay::{Pair, Relay};
use super::run_at;
use crate::check::{Check, must, should};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-RELAY-03",
        "a daemon's `close` ends that session with session_expired, and no other",
        "Signal(close) -> session_expired to the client, pairing closed",
        run_at!(close),
    ),
    must(
        "SBRP-RELAY-03b",
        "a reason that the relay does not know counts as none",
        "reason (00 none, ...; unknown = none)",
        run_at!(reasons),
    ),
    should(
        "SBRP-RELAY-03c",
        "a signal that is not of two bytes is malformed_frame",
        "0x04 Signal: 2 B; 0x0401 malformed_frame T0",
        run_at!(lengths),
    ),
];

async fn close(relay: &Relay<'_>) -> Ended {
    let Pair { id, mut daemon, mut client } = relay.pair().await?;
    let mut other = relay.paired(&id, &mut daemon).await?;
    let reasons = async {
        for reason in 0..=4 {
            let mut third = relay.paired(&id, &mut daemon).await?;
            daemon.send(&Frame::signal(third.session, [1, reason])).await?;
            third.is_refused(SessionExpired, third.session).await?;
        }
        Ok::<(), Stop>(())
    };
    client.beside(other.beside(reasons)).await?;
    daemon.send(&Frame::signal(client.session, [1, 0])).await?;
    client.is_refused(SessionExpired, client.session).await?;
    Pair { id, daemon, client: other }.works().await
}

async fn reasons(relay: &Relay<'_>) -> Ended {
    let Pair { id, mut daemon, mut client } = relay.pair().await?;
    let other = relay.paired(&id, &mut daemon).await?;
    daemon.send(&Frame::signal(client.session, [1, 0x77])).await?;
    client.is_refused(SessionExpired, client.session).await?;
    Pair { id, daemon, client: other }.works().await
}

async fn lengths(relay: &Relay<'_>) -> Ended {
    for payload in [&[][..], &[0], &[0, 0, 0]] {
        let Pair { mut daemon, client, .. } = relay.pair().await?;
        daemon.send(&Frame::new(SIGNAL, client.session, payload.to_vec())).await?;
        daemon.is_refused(MalformedFrame, 0).await?;
    }
    Ok(())
}
