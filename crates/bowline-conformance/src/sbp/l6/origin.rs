//! Sessions of the server under test that other gateways may take.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::asked::Exported;
use super::imports::import;
use super::manifest::Manifest;
use crate::check::{Check, Need, ours, run, should};
use crate::federation::keys::peek;
use crate::trial::{Answer, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    should(
        "SBP-L6-05",
        "a roaming token names its gateway and its bundle, and everybody can verify it",
        "Roaming token with federation on: extra claims iss (gateway id) and cid, and EdDSA signing \
         so that others can verify it",
        run!(token),
    ),
    ours(
        "SBP-L6-05e",
        "a session that was reserved and confirmed is the other gateway's",
        "The origin enforces single use across gateways (ours: by reservations)",
        run!(moved),
    )
    .needing(&[Need::Peer]),
];

async fn token(t: &Trial) -> Ended {
    let manifest = Manifest::of_gateway(t).await?;
    let key = manifest.key()?;
    let exported = Exported::make(t).await?;
    let (head, claims) = peek(&exported.token).unwrap_or_default();
    let came = format!("{head} {claims}");
    let says = |is: bool, expected: &str| t.holds(is, &exported.sent, expected, &came);
    says(head["alg"] == "EdDSA", "a roaming token with alg EdDSA")?;
    says(claims["iss"] == manifest.id, "iss = the gateway id of the manifest")?;
    says(claims["cid"] == exported.cid, "cid = the bundle's content id")?;
    let signed = key.claims(&exported.token).is_some();
    says(signed, "a signature of the key in the manifest")
}

async fn moved(t: &Trial) -> Ended {
    let manifest = Manifest::of_gateway(t).await?;
    let exported = Exported::make(t).await?;
    let id = Uuid::new_v4().to_string();
    let reserve = json!({ "reservation_id": id, "roaming_token": exported.token });
    let reserved = ask(t, &manifest, "reserve", &id, "", reserve).await?.is(&[200, 201])?;
    reserved.body.text(&["/cid"])?;
    let confirm = json!({ "session_id": Uuid::new_v4().to_string() });
    let rest = format!("/{id}/confirm");
    ask(t, &manifest, "confirm", &id, &rest, confirm).await?.is(&[200])?;
    import(t, &exported.token).await?.0.is(&[410])?;
    t.look(&exported.session).await?.body.is(&["/status"], "suspended")
}

/// Asks as the suite's gateway.
async fn ask(
    t: &Trial,
    manifest: &Manifest,
    action: &str,
    subject: &str,
    rest: &str,
    body: Value,
) -> Result<Answer, Stop> {
    let path = format!("/v1/sbp/federation/reservations{rest}");
    let token = t.peer()?.token_for(action, &manifest.id, subject, |_| ());
    t.wire.target.mask.learn(&token);
    let sent = t.wire.sent(&format!("POST {path} with a federation token"), Some(&body));
    let request = t.wire.target.http.request(Method::POST, t.wire.target.at(&path));
    t.wire.exchange(request.bearer_auth(token).json(&body), sent).await
}
