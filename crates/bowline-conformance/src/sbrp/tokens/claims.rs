//! The claims of a token.

use serde_json::{Value, json};

use crate::check::{Check, must};
use crate::issuer::now;
use crate::sbrp::relay::{Relay, merged, new_daemon, new_session, sid};
use crate::sbrp::run_at;
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-TOKEN-05",
        "a token for another audience is refused",
        "aud contains `sideband-relay` (string or array)",
        run_at!(audience),
    ),
    must("SBRP-TOKEN-06", "a token of another issuer is refused", "iss", run_at!(issuer)),
    must(
        "SBRP-TOKEN-07",
        "a token without its times is refused",
        "iat and exp present and numbers",
        run_at!(times),
    ),
    must("SBRP-TOKEN-08", "an expired token is refused", "exp with <= 30 s skew", run_at!(expired)),
    must(
        "SBRP-TOKEN-09",
        "a token of another version is refused, and one that names none is good",
        "`ver` absent or 1",
        run_at!(version),
    ),
    must(
        "SBRP-TOKEN-10",
        "a token of another role is refused",
        "role daemon|client",
        run_at!(role),
    ),
    must(
        "SBRP-TOKEN-11",
        "a token without a daemon is refused",
        "did non-empty string",
        run_at!(daemon),
    ),
    must(
        "SBRP-TOKEN-12",
        "a client's token needs its user and a session id of eight bytes",
        "client: sub non-empty, sid = base64url of exactly 8 bytes != 0",
        run_at!(client),
    ),
    must(
        "SBRP-TOKEN-13",
        "a token for another region is refused",
        "region equal if present",
        run_at!(region),
    ),
    must(
        "SBRP-TOKEN-14",
        "a client's token lives at most 300 s",
        "client: exp - iat <= 300",
        run_at!(lifetime),
    ),
    must(
        "SBRP-TOKEN-15",
        "scopes are a list of texts, and unknown ones are ignored",
        "scp array of strings (unknown scopes ignored)",
        run_at!(scopes),
    ),
];

/// Refuses a daemon's token with each of these values of a claim; `null`: without it.
async fn refuses_each(relay: &Relay<'_>, name: &str, values: &[Value]) -> Ended {
    for value in values {
        let good = relay.issuer.daemon_claims(&new_daemon());
        let claims = merged(good, &json!({ name: value }));
        let what = format!("a daemon's token with `{name}` = {value}");
        relay.refuses(&relay.issuer.token(&claims), &what).await?;
    }
    Ok(())
}

/// The same for a client's token.
async fn refuses_each_client(relay: &Relay<'_>, name: &str, values: &[Value]) -> Ended {
    for value in values {
        let good = relay.issuer.client_claims(&new_daemon(), &sid(new_session()));
        let claims = merged(good, &json!({ name: value }));
        let what = format!("a client's token with `{name}` = {value}");
        relay.refuses(&relay.issuer.token(&claims), &what).await?;
    }
    Ok(())
}

/// Lets a daemon in with this value of a claim.
async fn admits_with(relay: &Relay<'_>, name: &str, value: Value) -> Ended {
    let good = relay.issuer.daemon_claims(&new_daemon());
    let claims = merged(good, &json!({ name: value.clone() }));
    let what = format!("a daemon's token with `{name}` = {value}");
    relay.admits(&relay.issuer.token(&claims), &what, "daemon", 0).await?.die();
    Ok(())
}

async fn audience(relay: &Relay<'_>) -> Ended {
    let others = [json!("another"), json!(null), json!([]), json!(["another"]), json!(7)];
    refuses_each(relay, "aud", &others).await?;
    admits_with(relay, "aud", json!(["another", "sideband-relay"])).await
}

async fn issuer(relay: &Relay<'_>) -> Ended {
    refuses_each(relay, "iss", &[json!("https://issuer.invalid"), json!(null), json!("")]).await
}

async fn times(relay: &Relay<'_>) -> Ended {
    let no_times = [json!(null), json!("tomorrow"), json!({})];
    refuses_each(relay, "iat", &no_times).await?;
    refuses_each(relay, "exp", &no_times).await
}

async fn expired(relay: &Relay<'_>) -> Ended {
    refuses_each(relay, "exp", &[json!(now() - 60), json!(0)]).await
}

async fn version(relay: &Relay<'_>) -> Ended {
    refuses_each(relay, "ver", &[json!(2), json!(0), json!("1.0")]).await?;
    admits_with(relay, "ver", json!(null)).await
}

async fn role(relay: &Relay<'_>) -> Ended {
    refuses_each(relay, "role", &[json!("relay"), json!(null), json!(""), json!(1)]).await
}

async fn daemon(relay: &Relay<'_>) -> Ended {
    refuses_each(relay, "did", &[json!(""), json!(null), json!(7)]).await
}

async fn client(relay: &Relay<'_>) -> Ended {
    refuses_each_client(relay, "sub", &[json!(""), json!(null)]).await?;
    let wrong = [
        json!(null),
        json!(""),
        // Zero, seven bytes, nine bytes, and another alphabet.
        json!("AAAAAAAAAAA"),
        json!("AAAAAAAAAQ"),
        json!("AAAAAAAAAAAB"),
        json!("+/+/+/+/+/8"),
        json!(7),
    ];
    refuses_each_client(relay, "sid", &wrong).await
}

async fn region(relay: &Relay<'_>) -> Ended {
    refuses_each(relay, "region", &[json!("a-region-of-the-conformance-suite"), json!(7)]).await
}

async fn lifetime(relay: &Relay<'_>) -> Ended {
    refuses_each_client(relay, "exp", &[json!(now() + 600)]).await?;
    let good = relay.issuer.client_claims(&new_daemon(), &sid(new_session()));
    // Asked once: a second may begin between two calls, and 301 s are too many.
    let iat = now();
    let claims = merged(good, &json!({ "iat": iat, "exp": iat + 300 }));
    let what = "a client's token of 300 s";
    relay.admits(&relay.issuer.token(&claims), what, "client", 0).await?.die();
    Ok(())
}

async fn scopes(relay: &Relay<'_>) -> Ended {
    refuses_each(relay, "scp", &[json!("session:resume"), json!([7]), json!({})]).await?;
    admits_with(relay, "scp", json!(["session:resume", "unknown:scope"])).await
}
