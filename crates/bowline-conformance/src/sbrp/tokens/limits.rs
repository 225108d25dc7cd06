//! What a token limits, and what it does not: how many sessions there are, and how long they last.

use std::time::Duration;

use bowline_sbrp::control::ControlCode::Forbidden;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::check::{Check, must, should};
use crate::issuer::now;
use crate::sbrp::relay::{Dialed, Pair, Place, Relay, merged, new_daemon, new_session};
use crate::sbrp::run_at;
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-TOKEN-08b",
        "a connection outlives its token",
        "Established connections are not cut when a token expires",
        run_at!(outlives),
    )
    .slow(),
    must(
        "SBRP-TOKEN-16",
        "a limit on sessions that is no whole number from 1 is refused",
        "lim.concurrent_sessions integer >= 1",
        run_at!(limits),
    ),
    should(
        "SBRP-TOKEN-16b",
        "a daemon gets no more sessions than its token allows: the next client is forbidden",
        "lim.concurrent_sessions; forbidden T 0",
        run_at!(held),
    ),
];

async fn outlives(relay: &Relay<'_>) -> Ended {
    let id = new_daemon();
    let soon = now() + LIFE;
    let mut daemon = relay.daemon_with(&id, json!({ "exp": soon })).await?;
    let mut client = relay.paired(&id, &mut daemon).await?;
    // Until another token of the same time is refused: it is over with the skew that the protocol allows.
    daemon.beside(client.beside(over(relay, soon))).await?;
    Pair { id, daemon, client }.works().await
}

/// Comes back when the relay refuses a token that is good until then.
async fn over(relay: &Relay<'_>, until: u64) -> Ended {
    let claims = merged(relay.issuer.daemon_claims(&new_daemon()), &json!({ "exp": until }));
    let token = relay.issuer.token(&claims);
    let deadline = Instant::now() + OVER;
    while Instant::now() < deadline {
        let (dialed, _) = relay.dial(&relay.address(), Place::Query, &token).await?;
        if matches!(dialed, Dialed::Refused(_)) {
            break;
        }
        drop(dialed);
        sleep(Duration::from_secs(2)).await;
    }
    Ok(())
}

async fn limits(relay: &Relay<'_>) -> Ended {
    for limit in [json!(0), json!(-1), json!(1.5), json!("many")] {
        let lim = json!({ "lim": { "concurrent_sessions": limit } });
        let claims = merged(relay.issuer.daemon_claims(&new_daemon()), &lim);
        let what = format!("`lim.concurrent_sessions` = {limit}");
        relay.refuses(&relay.issuer.token(&claims), &what).await?;
    }
    Ok(())
}

async fn held(relay: &Relay<'_>) -> Ended {
    let id = new_daemon();
    let lim = json!({ "lim": { "concurrent_sessions": 2 } });
    let mut daemon = relay.daemon_with(&id, lim).await?;
    let client = relay.paired(&id, &mut daemon).await?;
    let _second = relay.paired(&id, &mut daemon).await?;
    relay.client(&id, new_session()).await?.is_refused(Forbidden, 0).await?;
    Pair { id, daemon, client }.works().await
}

/// How long the token is good, in seconds: long enough to be shown in time by a busy machine.
const LIFE: u64 = 8;
/// The time of the token, the skew, and some time on top.
const OVER: Duration = Duration::from_secs(50);
