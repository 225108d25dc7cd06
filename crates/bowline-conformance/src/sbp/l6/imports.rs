//! Sessions of the suite's gateway that the server under test takes.

use serde_json::json;
use uuid::Uuid;

use super::manifest::Manifest;
use crate::check::{Check, Need, must, run, should};
use crate::federation::keys::peek;
use crate::federation::{Offer, Persona, REDIRECTED};
use crate::trial::{Answer, As, Session, Trial, desktop};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    should(
        "SBP-L6-05b",
        "a session of another gateway is imported by its roaming token",
        "it fetches from the origin, verifies, imports",
        run!(imports),
    )
    .needing(&[Need::Peer]),
    should(
        "SBP-L6-05c",
        "a session of another gateway goes on where it stood",
        "it fetches from the origin, verifies, imports",
        run!(goes_on),
    )
    .needing(&[Need::Peer, Need::Model]),
    should(
        "SBP-L6-05f",
        "a surface brings a session of another gateway by its roaming token",
        "ATTACH_SESSION with a roaming_token of another gateway: it fetches from the origin, verifies, \
         imports, then SESSION_ATTACHED",
        run!(brought),
    )
    .needing(&[Need::Peer]),
    must(
        "SBP-L6-05d",
        "a roaming token of another gateway works once",
        "The origin enforces single use across gateways",
        run!(single_use),
    )
    .needing(&[Need::Peer]),
    must(
        "SBP-L6-02f",
        "the server's own federation tokens are for one gateway, for five minutes, and used once",
        "EdDSA JWT: iss = asking gateway, aud = this gateway, exp <= 5 min, jti once",
        run!(own_tokens),
    )
    .needing(&[Need::Peer]),
];

/// Imports an offer; `agent` is in no other import.
pub(super) async fn import(t: &Trial, token: &str) -> Result<(Answer, String), Stop> {
    let agent = format!("conformance-{}", Uuid::new_v4().simple());
    let body = json!({ "roaming_token": token, "target_agent_id": agent });
    Ok((t.post("/v1/sbp/sessions/import", As::Caller, body).await?, agent))
}

/// Nothing is known if the server did not come to the suite's gateway.
pub(super) fn asked(t: &Trial, offer: &Offer) -> Result<(), Stop> {
    let requests = t.peer()?.requests(offer.persona);
    match requests.iter().any(|request| request.path.contains(&offer.cid)) {
        true => Ok(()),
        false => Err(Stop::unable(format!(
            "the server has not asked {} for the bundle: make it a peer, and start the server again \
             if it lied to it before",
            t.peer()?.url(offer.persona)
        ))),
    }
}

async fn imported(t: &Trial) -> Result<(Session, Offer), Stop> {
    Manifest::of_gateway(t).await?;
    let offer = t.peer()?.offer(Persona::Honest);
    let (answer, agent) = import(t, &offer.token).await?;
    if answer.status != 201 {
        asked(t, &offer)?;
    }
    let came = answer.is(&[201])?.body;
    came.is(&["/agent_id"], agent)?;
    came.is(&["/origin_export_id"], offer.export.as_str())?;
    came.is(&["/message_count", "/messages_restored"], 2)?;
    let ids = ["/session_id", "/new_session_id"];
    Ok((Session::of(&came, &ids, &["/session_token", "/new_session_token"])?, offer))
}

async fn imports(t: &Trial) -> Ended {
    let (session, _) = imported(t).await?;
    t.look(&session).await?.body.is(&["/step_count"], 1)?;
    t.say(&session, "Go on.").await.map(drop)
}

async fn goes_on(t: &Trial) -> Ended {
    let (session, offer) = imported(t).await?;
    let next = t.saying("Under the mat, then.")?;
    t.say(&session, &next.prompt()).await?;
    let asked = next.asked(1).await?;
    let knows = asked.count(&offer.question) >= 1 && asked.count(&offer.answer) >= 1;
    let expected = "upstream: what was said at the other gateway";
    t.holds(knows, "a turn in the imported session", expected, &asked.body.to_string())
}

/// The same, where that a session is imported at all is another check's subject.
async fn importable(t: &Trial) -> Result<Offer, Stop> {
    match imported(t).await {
        Err(Stop::Broken(_) | Stop::NotOffered(_) | Stop::OtherForm(_)) => {
            Err(Stop::unable("no session was imported (SBP-L6-05b)"))
        }
        imported => imported.map(|(_, offer)| offer),
    }
}

async fn brought(t: &Trial) -> Ended {
    // A server that does not know the suite's gateway could not bring anything.
    importable(t).await?;
    let offer = t.peer()?.offer(Persona::Honest);
    let id = offer.claims()["sid"].as_str().unwrap_or_default().to_owned();
    // Whoever brings a session may need a key of the server; the session's own token is not known here.
    let origin = Session { id, token: t.wire.target.key().unwrap_or_default().to_owned() };
    let fields = json!({
        "roaming_token": offer.token, "surface_context": desktop(), "surface": desktop(),
    });
    let (socket, attached) = t.attach_saying(&origin, fields).await?;
    attached.text(&["/session_id"])?;
    attached.holds(asked(t, &offer).is_ok(), "the bundle fetched from the gateway that has it")?;
    socket.detach().await
}

async fn single_use(t: &Trial) -> Ended {
    let offer = importable(t).await?;
    let (again, _) = import(t, &offer.token).await?;
    again.is(&[410]).map(drop)
}

/// How much the clocks of the server and of the suite may differ, in seconds.
const SKEW: i64 = 30;

async fn own_tokens(t: &Trial) -> Ended {
    let manifest = Manifest::of_gateway(t).await?;
    let key = manifest.key()?;
    let _import_or_refusal = imported(t).await;
    let mut shown = t.peer()?.all_requests();
    // What is shown after a redirect was meant for another address.
    shown.retain(|request| !request.path.contains(REDIRECTED));
    let tokens = shown.iter().filter_map(|request| Some((request, request.token.as_deref()?)));
    let mut seen = Vec::new();
    for (request, token) in tokens {
        let claims = key.claims(token);
        let came =
            peek(token).map_or_else(String::new, |(head, claims)| format!("{head} {claims}"));
        let sent = format!("a request for {}", request.path);
        let says = |is: bool, expected: &str| t.holds(is, &sent, expected, &came);
        says(claims.is_some(), "a federation token signed with the key of the server's manifest")?;
        let claims = claims.unwrap_or_default();
        says(claims["iss"] == manifest.id, "iss = the server's gateway id")?;
        says(claims["aud"] == request.persona.id(), "aud = the gateway that is asked")?;
        // Measured when it came, because `iat` is not asked for; the two clocks may differ.
        let left = claims["exp"].as_i64().map(|exp| exp - request.at as i64);
        let is_so = left.is_some_and(|left| (-SKEW..=300 + SKEW).contains(&left));
        says(is_so, "exp in the future, and at most 300 s from now")?;
        let jti = claims["jti"].to_string();
        says(
            claims["jti"].is_string() && !seen.contains(&jti),
            "a `jti` that was not used before",
        )?;
        seen.push(jti);
    }
    match seen.is_empty() {
        true => Err(Stop::unable("the server has not asked the suite's gateway: make it a peer")),
        false => Ok(()),
    }
}
