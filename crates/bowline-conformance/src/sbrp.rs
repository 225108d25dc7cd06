//! The checks of SBRP that a relay shows to the outside. The suite's own control plane signs the tokens, and
//! daemons and clients are played here.

mod clients;
mod codes;
mod forwarding;
mod frame;
mod grace;
mod keepalive;
mod peer;
mod presence;
mod pressure;
mod relay;
mod senders;
mod signals;
mod tokens;
mod unseen;
mod validation;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::check::Check;
use crate::problem::Problem;
use crate::report::Unseen;
use crate::trial::Trial;
use crate::verdict::Stop;
use relay::{Dialed, Place, Relay, new_daemon};

/// Makes a [`Run`](crate::check::Run) of an `async fn(&Relay<'_>) -> Ended`.
macro_rules! run_at {
    ($check:path) => {
        |trial| {
            Box::pin(async move {
                let relay = $crate::sbrp::relay::Relay::of(trial)?;
                $check(&relay).await
            })
        }
    };
}
pub(crate) use run_at;

/// All checks of a relay, by their ids within each table.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    tokens::TABLES.iter().chain(TABLES).flat_map(|table| table.iter())
}

const TABLES: &[&[Check]] = &[
    forwarding::CHECKS,
    signals::CHECKS,
    senders::CHECKS,
    validation::CHECKS,
    pressure::CHECKS,
    presence::CHECKS,
    grace::CHECKS,
    clients::CHECKS,
    keepalive::CHECKS,
    codes::CHECKS,
];

/// The requirements that cannot be seen from outside.
pub fn unseen() -> impl Iterator<Item = Unseen> {
    unseen::UNSEEN.iter().copied()
}

/// Waits until the relay lets a daemon of the suite's in: it may have to fetch the keys first, and may do so
/// only now and then.
pub(crate) async fn is_ready(trial: &Trial, within: Duration) -> Result<(), Problem> {
    let unreachable = |stop| match stop {
        Stop::Broken(finding) | Stop::NotOffered(finding) | Stop::OtherForm(finding) => {
            Problem::Unreachable(finding.came)
        }
        Stop::Unable(why) => Problem::Unreachable(why),
    };
    let relay = Relay::of(trial).map_err(unreachable)?;
    let deadline = Instant::now() + within;
    loop {
        let token = relay.issuer.token(&relay.issuer.daemon_claims(&new_daemon()));
        let dialed = relay.dial(&relay.address(), Place::Query, &token).await;
        let (Dialed::Refused(status), _) = dialed.map_err(unreachable)? else { return Ok(()) };
        if !matches!(status, 401 | 403) {
            return Err(Problem::Unreachable(format!("status {status} to a WebSocket upgrade")));
        }
        if Instant::now() > deadline {
            let url = relay.issuer.url().to_owned();
            return Err(Problem::OtherIssuer(url, format!("status {status}")));
        }
        sleep(Duration::from_millis(500)).await;
    }
}
