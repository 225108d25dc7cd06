//! The keys that a relay fetches.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::check::{Check, must};
use crate::sbrp::relay::{Dialed, Place, Relay, merged, new_daemon};
use crate::sbrp::run_at;
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-TOKEN-03",
        "each published key counts, and a key that is not published does not",
        "`kid`; keys from <issuer>/.well-known/jwks.json, >= 2 keys",
        run_at!(published),
    ),
    must(
        "SBRP-TOKEN-03b",
        "a key that is published later counts soon",
        "cache <= 5 min, refetch on an unknown kid with a rate limit",
        run_at!(rotated),
    )
    .slow(),
    must(
        "SBRP-TOKEN-03c",
        "tokens with unknown keys do not make the relay fetch keys each time",
        "refetch on an unknown kid with a rate limit",
        run_at!(fetches),
    ),
];

async fn published(relay: &Relay<'_>) -> Ended {
    let claims = relay.issuer.daemon_claims(&new_daemon());
    for key in relay.issuer.keys().iter().take(2) {
        relay.admits(&key.token(&claims), "a token of a published key", "daemon", 0).await?.die();
    }
    let key = relay.issuer.first_key();
    let unknown = format!("unknown-{}", Uuid::new_v4().simple());
    for kid in [json!(unknown), json!(null), json!("")] {
        let header = merged(key.header(), &json!({ "kid": kid }));
        relay.refuses(&key.signed(&header, &claims), &format!("`kid` = {kid}")).await?;
    }
    Ok(())
}

async fn rotated(relay: &Relay<'_>) -> Ended {
    let key = relay.issuer.add_key().map_err(|error| Stop::unable(error.to_string()))?;
    let token = key.token(&relay.issuer.daemon_claims(&new_daemon()));
    let deadline = Instant::now() + SOON;
    loop {
        let (dialed, sent) = relay.dial(&relay.address(), Place::Query, &token).await?;
        let Dialed::Refused(status) = dialed else { return Ok(()) };
        if Instant::now() > deadline {
            let expected =
                format!("101 for a key that has been published for {} s", SOON.as_secs());
            return Err(Stop::broken(sent, expected, format!("status {status}")));
        }
        sleep(Duration::from_secs(2)).await;
    }
}

/// Other checks show unknown keys at the same time, so some fetches are not from here.
async fn fetches(relay: &Relay<'_>) -> Ended {
    let claims = relay.issuer.daemon_claims(&new_daemon());
    let key = relay.issuer.first_key();
    let (before, begun) = (relay.issuer.fetches(), Instant::now());
    for _ in 0..TOKENS {
        let kid = format!("unknown-{}", Uuid::new_v4().simple());
        let header = merged(key.header(), &json!({ "kid": kid }));
        relay.refuses(&key.signed(&header, &claims), "an unknown key").await?;
    }
    let fetched = relay.issuer.fetches() - before;
    // A relay that fetches once in a second is no trouble, however long the tokens take.
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap_or(usize::MAX);
    let most = (TOKENS / 3).max(seconds.saturating_add(1));
    if fetched <= most {
        return Ok(());
    }
    let sent = format!("{TOKENS} tokens with unknown keys, one after the other");
    let expected = format!("at most {most} fetches of the key set");
    Err(Stop::broken(sent, expected, format!("{fetched} fetches")))
}

const TOKENS: usize = 30;
/// The protocol allows a cache of five minutes, and asks for a fetch when a key is unknown: longer than any
/// sensible limit on these fetches.
const SOON: Duration = Duration::from_secs(60);
