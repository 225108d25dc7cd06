//! What another gateway gets, and with which token.

use reqwest::Method;
use serde_json::{Value, json};

use super::manifest::Manifest;
use crate::check::{Check, Need, must, run};
use crate::federation::keys::content_id;
use crate::federation::{Persona, now};
use crate::trial::{Answer, As, Session, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L6-02",
        "a gateway gets a bundle by its content id, and the content id fits",
        "GET /v1/sbp/bundles/{cid} (gateways): federation token required (EdDSA JWT: iss = asking \
         gateway, aud = this gateway, exp <= 5 min, jti once); the CID is verified before it is \
         returned",
        run!(given),
    )
    .needing(&[Need::Peer]),
    must(
        "SBP-L6-02b",
        "without a federation token nobody gets a bundle",
        "Federation token (signed JWT or mutual TLS) MUST be required for bundle resolution; \
         401/403/404 otherwise",
        run!(no_token),
    ),
    must(
        "SBP-L6-02c",
        "a federation token of another key, for another gateway or of another time is refused",
        "EdDSA JWT: iss = asking gateway, aud = this gateway, exp <= 5 min; 401/403/404 otherwise",
        run!(bad_tokens),
    )
    .needing(&[Need::Peer]),
    must("SBP-L6-02d", "a federation token works once", "jti once", run!(once))
        .needing(&[Need::Peer]),
    must("SBP-L6-02e", "an unknown content id is refused", "401/403/404 otherwise", run!(unknown))
        .needing(&[Need::Peer]),
];

/// A session with one turn, exported for the suite's gateway.
pub(super) struct Exported {
    pub(super) session: Session,
    pub(super) cid: String,
    pub(super) token: String,
    pub(super) sent: String,
}

impl Exported {
    pub(super) async fn make(t: &Trial) -> Result<Self, Stop> {
        let (session, answer) = export(t, false).await?;
        Self::of(session, answer)
    }

    pub(super) fn of(session: Session, answer: Answer) -> Result<Self, Stop> {
        let made = answer.is(&[201])?.body;
        let cid = made.text(&["/bundle_cid", "/bundle_hash"])?.to_owned();
        let token = made.text(&["/roaming_token"])?.to_owned();
        Ok(Self { session, cid, token, sent: made.sent })
    }
}

/// Exports a new session with one turn for the suite's gateway, and says whether trackers may be told.
pub(super) async fn export(t: &Trial, announce: bool) -> Result<(Session, Answer), Stop> {
    let session = t.session().await?;
    t.say(&session, "Hello.").await?;
    let path = format!("/v1/sbp/sessions/{}/export", session.id);
    // `for_gateway` and `announce` are ours: who may have the bundle, and who may know of it. Others ignore them.
    let mut body = json!({ "ttl_seconds": 3600, "for_gateway": Persona::Honest.id() });
    if announce {
        body["announce"] = json!(true);
    }
    let answer = t.post(&path, As::Session(&session), body).await?;
    Ok((session, answer))
}

/// Asks for a bundle as a gateway does.
async fn fetch(
    t: &Trial,
    exported: &Exported,
    cid: &str,
    token: Option<&str>,
) -> Result<Answer, Stop> {
    let path = format!("/v1/sbp/bundles/{cid}");
    let mut request = t.wire.target.http.request(Method::GET, t.wire.target.at(&path));
    request = request.header("SBP-Roaming-Token", &exported.token);
    let mut said = format!("GET {path}");
    if let Some(token) = token {
        t.wire.target.mask.learn(token);
        request = request.bearer_auth(token);
        said += " with a federation token";
    }
    let sent = t.wire.sent(&said, None);
    t.wire.exchange(request, sent).await
}

/// What a good token gets. It may be refused by a server that was not told of the suite's gateway, and by one whose
/// gateways have another form of tokens: the protocol has none.
fn known(t: &Trial, answer: Answer) -> Result<Answer, Stop> {
    if answer.status != 200 && !t.peer()?.is_known() {
        let why =
            "the server has never asked for the manifest of the suite's gateway: make it a peer";
        return Err(Stop::unable(why));
    }
    match answer.status {
        401 | 403 => {
            Err(answer.body.other_form("status 200 for a federation token of the suite's form"))
        }
        _ => answer.is(&[200]),
    }
}

/// The same, where that good tokens are accepted is another check's subject.
fn accepted(t: &Trial, answer: Answer) -> Result<Answer, Stop> {
    match known(t, answer) {
        Err(Stop::OtherForm(_)) => {
            Err(Stop::unable("the server refuses good federation tokens (SBP-L6-02)"))
        }
        answer => answer,
    }
}

/// Gets the bundle with a good token, which is returned.
async fn fetched(t: &Trial, manifest: &Manifest, exported: &Exported) -> Result<String, Stop> {
    let token = t.peer()?.token(&manifest.id, &exported.cid, |_| ());
    accepted(t, fetch(t, exported, &exported.cid, Some(&token)).await?)?;
    Ok(token)
}

fn refused(answer: &Answer, expected: &str) -> Ended {
    answer.body.holds(matches!(answer.status, 401 | 403), expected)
}

async fn given(t: &Trial) -> Ended {
    let manifest = Manifest::of_gateway(t).await?;
    let exported = Exported::make(t).await?;
    let token = t.peer()?.token(&manifest.id, &exported.cid, |_| ());
    let given = known(t, fetch(t, &exported, &exported.cid, Some(&token)).await?)?;
    let fits = content_id(&given.text).as_deref() == Some(&exported.cid);
    given.body.holds(fits, &format!("a bundle whose content id is {}", exported.cid))
}

async fn no_token(t: &Trial) -> Ended {
    Manifest::of_gateway(t).await?;
    let exported = Exported::make(t).await?;
    let answer = fetch(t, &exported, &exported.cid, None).await?;
    refused(&answer, "status 401 or 403: there is no federation token")
}

async fn bad_tokens(t: &Trial) -> Ended {
    let manifest = Manifest::of_gateway(t).await?;
    let exported = Exported::make(t).await?;
    let peer = t.peer()?;
    let changed = |change: fn(&mut Value)| peer.token(&manifest.id, &exported.cid, change);
    let bad = [
        ("another gateway's key", peer.forged(&manifest.id, &exported.cid)),
        ("another audience", peer.token("another-gateway", &exported.cid, |_| ())),
        (
            "a time that is over",
            changed(|claims| {
                claims["iat"] = json!(now() - 200);
                claims["exp"] = json!(now() - 100);
            }),
        ),
        (
            "a life of more than five minutes",
            changed(|claims| {
                claims["exp"] = json!(now() + 3600);
            }),
        ),
    ];
    for (what, token) in bad {
        let answer = fetch(t, &exported, &exported.cid, Some(&token)).await?;
        refused(&answer, &format!("status 401 or 403: the token is of {what}"))?;
    }
    Ok(())
}

async fn once(t: &Trial) -> Ended {
    let manifest = Manifest::of_gateway(t).await?;
    let exported = Exported::make(t).await?;
    let token = fetched(t, &manifest, &exported).await?;
    let again = fetch(t, &exported, &exported.cid, Some(&token)).await?;
    refused(&again, "status 401 or 403: the token was used")
}

async fn unknown(t: &Trial) -> Ended {
    let manifest = Manifest::of_gateway(t).await?;
    let exported = Exported::make(t).await?;
    fetched(t, &manifest, &exported).await?;
    let nothing = "0".repeat(64);
    let token = t.peer()?.token(&manifest.id, &nothing, |_| ());
    // 403 where it is nobody's business what there is.
    fetch(t, &exported, &nothing, Some(&token)).await?.is(&[401, 403, 404]).map(drop)
}
