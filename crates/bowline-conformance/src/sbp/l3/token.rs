//! What a roaming token opens, and how often.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::export::{begun, export, roaming_token};
use super::import::{IMPORT, imported};
use crate::check::{Check, must, run};
use crate::trial::{As, Trial};
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L3-06",
        "of imports at the same time exactly one wins",
        "Single use: of any number of concurrent imports exactly one wins; the others 410 \
         SBP_TOKEN_CONSUMED",
        run!(single_use),
    ),
    must(
        "SBP-L3-06b",
        "a token with a bad signature is refused",
        "bad signature 422 SBP_TOKEN_INVALID",
        run!(forged),
    ),
    must("SBP-L3-06c", "a token expires", "Expired 410 SBP_TOKEN_EXPIRED", run!(expired)).slow(),
    must(
        "SBP-L3-07",
        "`allow_reuse` forks, any number of times",
        "allow_reuse:true forks: any number of times, both sessions independent, token not consumed",
        run!(reused),
    ),
    must(
        "SBP-L3-09",
        "a token is inspected without using it up",
        "GET /v1/sbp/token/{token} inspects without consuming",
        run!(inspected),
    ),
];

async fn single_use(t: &Trial) -> Ended {
    let session = begun(t).await?;
    let made = export(t, &session, 3600).await?;
    let body = json!({ "roaming_token": roaming_token(&made)?, "target_agent_id": "conformance" });
    let running: Vec<_> = (0..8).map(|_| t.begin_post(IMPORT, body.clone())).collect();
    let mut won = 0;
    for import in running {
        let answer = import.answer().await?;
        match answer.status {
            201 => won += 1,
            _ => answer.is_error(410, "SBP_TOKEN_CONSUMED")?,
        }
    }
    let came = format!("{won} of 8 imports with 201");
    t.holds(won == 1, "8 imports of one token at once", "exactly one 201", &came)?;
    let late = t.post(IMPORT, As::Caller, body).await?;
    late.is_error(410, "SBP_TOKEN_CONSUMED")
}

async fn forged(t: &Trial) -> Ended {
    let session = begun(t).await?;
    let made = export(t, &session, 3600).await?;
    let token = roaming_token(&made)?;
    // Another first character of the signature is another signature.
    let at = token.rfind('.').map_or(0, |dot| dot + 1);
    let (head, signature) = token.split_at(at);
    let other = if signature.starts_with('A') { "B" } else { "A" };
    let forged = format!("{head}{other}{}", signature.get(1..).unwrap_or_default());
    let body = json!({ "roaming_token": forged, "target_agent_id": "conformance" });
    t.post(IMPORT, As::Caller, body).await?.is_error(422, "SBP_TOKEN_INVALID")
}

async fn expired(t: &Trial) -> Ended {
    let session = begun(t).await?;
    let made = export(t, &session, 60).await?;
    // The protocol's shortest life, and a second for rounding.
    sleep(Duration::from_secs(61)).await;
    let body = json!({
        "roaming_token": roaming_token(&made)?, "target_agent_id": "conformance",
    });
    t.post(IMPORT, As::Caller, body).await?.is_error(410, "SBP_TOKEN_EXPIRED")
}

async fn reused(t: &Trial) -> Ended {
    let session = begun(t).await?;
    let made = export(t, &session, 3600).await?;
    let body = json!({
        "roaming_token": roaming_token(&made)?, "target_agent_id": "conformance",
        "allow_reuse": true,
    });
    let mut ids = vec![session.id.clone()];
    for _ in 0..2 {
        let (fork, came) = imported(t, body.clone()).await?;
        came.holds(!ids.contains(&fork.id), "another session for each import")?;
        t.say(&fork, "Go on.").await?;
        ids.push(fork.id);
    }
    t.look(&session).await?.body.is(&["/step_count"], 1)?;
    let once = json!({ "roaming_token": roaming_token(&made)?, "target_agent_id": "conformance" });
    imported(t, once).await.map(drop)
}

async fn inspected(t: &Trial) -> Ended {
    let session = begun(t).await?;
    let made = export(t, &session, 3600).await?;
    let token = roaming_token(&made)?;
    for _ in 0..2 {
        let seen = t.get(&format!("/v1/sbp/token/{token}"), As::Caller).await?.is(&[200])?.body;
        seen.is(&["/export_id"], made.json["export_id"].clone())?;
    }
    let body = json!({ "roaming_token": token, "target_agent_id": "conformance" });
    imported(t, body).await.map(drop)
}
