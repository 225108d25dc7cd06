//! Trackers: who has which bundle.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::asked::{Exported, export};
use super::manifest::Manifest;
use crate::check::{Check, Need, must, run, should};
use crate::federation::Persona;
use crate::federation::keys::{ANNOUNCEMENT, REGISTRY};
use crate::trial::{As, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    should(
        "SBP-L6-03",
        "a tracker answers who has a bundle, signed with the key of its manifest",
        "Tracker: POST /v1/sbp/registry (announcement signed by the gateway), GET \
         /v1/sbp/registry/{cid} -> list of gateway URLs with expiry, signed with the key of its own \
         manifest",
        run!(registry),
    )
    .needing(&[Need::Peer]),
    must(
        "SBP-L6-03b",
        "a tracker has no bundles, and gets none for others",
        "Never holds or proxies content",
        run!(no_content),
    )
    .needing(&[Need::Peer]),
    should(
        "SBP-L6-03c",
        "a gateway announces what it exports to its tracker, signed with its key",
        "announcement signed by the gateway",
        run!(announces),
    )
    .needing(&[Need::Peer]),
];

async fn tracker(t: &Trial) -> Result<Manifest, Stop> {
    let manifest = Manifest::of(t).await?;
    match manifest.is_tracker() {
        true => Ok(manifest),
        false => Err(Stop::unable("the server is no tracker")),
    }
}

async fn registry(t: &Trial) -> Ended {
    let manifest = tracker(t).await?;
    let key = manifest.key()?;
    let peer = t.peer()?;
    let cid = peer.offer(Persona::Honest).cid;
    let made = t.post("/v1/sbp/registry", As::Caller, peer.announces(&cid)).await?;
    if !(200..300).contains(&made.status) && !peer.is_known() {
        return Err(Stop::unable(
            "the tracker has never asked the suite's gateway: make it a peer",
        ));
    }
    made.is(&[200, 201, 202, 204])?;
    let answer = t.get(&format!("/v1/sbp/registry/{cid}"), As::Caller).await?.is(&[200])?;
    let signed = key.signed(REGISTRY, &answer.text);
    answer.body.holds(signed, "a `signature` of the key in the tracker's manifest")?;
    let gateways = answer.body.list(&["/gateways"])?;
    let url = peer.url(Persona::Honest);
    let named = gateways.iter().any(|one| one["url"] == url && !one["expires_at"].is_null());
    answer.body.holds(named, "the gateway that announced it, with `url` and `expires_at`")
}

async fn no_content(t: &Trial) -> Ended {
    let manifest = tracker(t).await?;
    let peer = t.peer()?;
    let cid = peer.offer(Persona::Honest).cid;
    let made = t.post("/v1/sbp/registry", As::Caller, peer.announces(&cid)).await?;
    if !(200..300).contains(&made.status) {
        return Err(Stop::unable("nothing can be announced (SBP-L6-03)"));
    }
    let path = format!("/v1/sbp/bundles/{cid}");
    let token = peer.token(&manifest.id, &cid, |_| ());
    t.wire.target.mask.learn(&token);
    let sent = t.wire.sent(&format!("GET {path} with a federation token"), None);
    let request = t.wire.target.http.get(t.wire.target.at(&path)).bearer_auth(token);
    let answer = t.wire.exchange(request, sent).await?;
    let expected = "status 404 (401, 403): a tracker returns references only";
    answer.body.holds(matches!(answer.status, 401 | 403 | 404), expected)?;
    let asked = peer.requests(Persona::Honest);
    let proxied = asked.iter().any(|request| request.path.contains(&cid));
    answer.body.holds(!proxied, "no request to the gateway that has the bundle")
}

async fn announces(t: &Trial) -> Ended {
    let manifest = Manifest::of_gateway(t).await?;
    let key = manifest.key()?;
    let (session, answer) = export(t, true).await?;
    if (400..500).contains(&answer.status) {
        let why = "the server refuses to announce an export: tell it of the suite's tracker";
        return Err(Stop::unable(why));
    }
    let exported = Exported::of(session, answer)?;
    let peer = t.peer()?;
    let begun = Instant::now();
    let announced = loop {
        if let Some(announced) = peer.announcement_of(&exported.cid) {
            break announced;
        }
        if begun.elapsed() > ANNOUNCED {
            let why =
                "the server has announced nothing to the suite's tracker: tell it of that one";
            return Err(Stop::unable(why));
        }
        sleep(Duration::from_millis(50)).await;
    };
    let json: Value = serde_json::from_str(&announced).unwrap_or_default();
    let says = |is: bool, expected: &str| t.holds(is, &exported.sent, expected, &announced);
    says(key.signed(ANNOUNCEMENT, &announced), "a `signature` of the manifest's key")?;
    says(json["gateway_id"] == manifest.id, "gateway_id = that of the manifest")?;
    says(json.get("messages").is_none(), "no content")
}

/// How long an announcement may take.
const ANNOUNCED: Duration = Duration::from_secs(15);
