//! Gateways that lie.

use serde_json::Value;

use super::imports::{asked, import};
use super::manifest::Manifest;
use crate::check::{Check, Need, must, run};
use crate::federation::{Offer, Persona, REDIRECTED, stranger};
use crate::trial::{As, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L6-06",
        "a bundle with another content id is refused, and nothing is stored",
        "A peer that lies (wrong bytes, wrong signature, huge body, slow body, redirect to a \
         private address) changes nothing",
        run!(other_bytes),
    )
    .needing(&[Need::Peer]),
    must(
        "SBP-L6-06b",
        "a roaming token that its gateway did not sign is refused, and nothing is stored",
        "A peer that lies (wrong signature) changes nothing",
        run!(other_key),
    )
    .needing(&[Need::Peer]),
    must(
        "SBP-L6-06c",
        "a bundle without an end is not read for ever, and nothing is stored",
        "A peer that lies (huge body) changes nothing",
        run!(endless),
    )
    .needing(&[Need::Peer]),
    must(
        "SBP-L6-06d",
        "a redirect is not followed, and nothing is stored",
        "A peer that lies (redirect to a private address) changes nothing",
        run!(redirected),
    )
    .needing(&[Need::Peer]),
];

/// Imports, and expects a refusal that leaves nothing behind.
async fn refused(t: &Trial, token: &str, lie: &str) -> Ended {
    let (answer, agent) = import(t, token).await?;
    let expected = format!("a refusal (status 400 or more): {lie}");
    answer.body.holds(answer.status >= 400, &expected)?;
    let has_session = answer.body.json["session_id"].is_string();
    answer.body.holds(!has_session, "no session in the refusal")?;
    let listed = t.get("/v1/sessions", As::Caller).await?;
    // Not every server lists its sessions.
    let stored = listed.status == 200 && listed.text.contains(&agent);
    listed.body.holds(!stored, "no session of what was refused")
}

async fn lied(t: &Trial, persona: Persona, lie: &str) -> Result<Offer, Stop> {
    Manifest::of_gateway(t).await?;
    let offer = t.peer()?.offer(persona);
    let ended = refused(t, &offer.token, lie).await;
    asked(t, &offer)?;
    ended.map(|()| offer)
}

async fn other_bytes(t: &Trial) -> Ended {
    lied(t, Persona::OtherBytes, "the bundle is not that of the content id").await.map(drop)
}

async fn other_key(t: &Trial) -> Ended {
    Manifest::of_gateway(t).await?;
    let offer = t.peer()?.offer(Persona::Honest);
    let claims: Value = offer.claims();
    let forged = stranger().token("JWT", &claims);
    refused(t, &forged, "another key has signed the roaming token").await?;
    let fetched = asked(t, &offer).is_ok();
    t.holds(
        !fetched,
        "a forged roaming token",
        "no request for its bundle",
        "the bundle was fetched",
    )
}

async fn endless(t: &Trial) -> Ended {
    lied(t, Persona::Endless, "the bundle has no end").await?;
    let read = t.peer()?.endless_bytes();
    let came = format!("{} MiB were read", read >> 20);
    t.holds(read < MOST, "a bundle without an end", "an end of the reading below 512 MiB", &came)
}

async fn redirected(t: &Trial) -> Ended {
    let offer = lied(t, Persona::Redirects, "the bundle is said to be elsewhere").await?;
    let asked = t.peer()?.requests(Persona::Honest);
    let followed = asked
        .iter()
        .any(|request| request.path.contains(&offer.cid) && request.path.contains(REDIRECTED));
    let came = "the address of the redirect was asked";
    t.holds(!followed, "a redirect", "no request to the address of the redirect", came)
}

/// A server that has read so much, reads on.
const MOST: usize = 512 << 20;
