//! Exports and roaming tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::came::Came;
use crate::check::{Check, must, run};
use crate::trial::{As, Session, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L3-01",
        "a session is exported",
        "POST /v1/sbp/sessions/{id}/export {ttl_seconds 60...604800 default 86400, label} -> 201 \
         {export_id, roaming_token, session_id, expires_at, bundle_cid, bundle_hash, \
         message_count, label}",
        run!(exports),
    ),
    must(
        "SBP-L3-02",
        "the roaming token is a signed reference that expires",
        "Roaming token: compact JWT, HS256, payload {sub: export_id, sid: session_id, iat, exp} \
         (at most 7 days)",
        run!(token),
    ),
];

/// The content id of an export, by either name.
pub(super) const CID: &[&str] = &["/bundle_cid", "/bundle_hash"];

/// A call of the session's: export, import and so on.
pub(super) fn path(session: &Session, call: &str) -> String {
    format!("/v1/sbp/sessions/{}/{call}", session.id)
}

/// A session with one turn.
pub(super) async fn begun(t: &Trial) -> Result<Session, Stop> {
    let session = t.session().await?;
    t.say(&session, "Hello.").await?;
    Ok(session)
}

/// Exports a session for so many seconds.
pub(super) async fn export(t: &Trial, session: &Session, seconds: u64) -> Result<Came, Stop> {
    let body = json!({ "ttl_seconds": seconds, "label": "conformance" });
    let made = t.post(&path(session, "export"), As::Session(session), body).await?;
    Ok(made.is(&[201])?.body)
}

pub(super) fn roaming_token(export: &Came) -> Result<&str, Stop> {
    export.text(&["/roaming_token"])
}

async fn exports(t: &Trial) -> Ended {
    let session = begun(t).await?;
    let made = export(t, &session, 3600).await?;
    for name in ["/export_id", "/roaming_token", "/expires_at"] {
        made.text(&[name])?;
    }
    made.is(&["/session_id"], session.id.as_str())?;
    made.is(&["/label"], "conformance")?;
    made.is(&["/message_count"], 2)?;
    let cid = made.text(CID)?;
    let is_hash = cid.len() == 64 && cid.bytes().all(|b| b.is_ascii_hexdigit());
    made.holds(is_hash, "64 hexadecimal digits in `bundle_cid`")?;
    // All is optional.
    t.post(&path(&session, "export"), As::Session(&session), json!({})).await?.is(&[201])?;
    for wrong in [59, 604_801] {
        let body = json!({ "ttl_seconds": wrong });
        let refused = t.post(&path(&session, "export"), As::Session(&session), body).await?;
        let is = (400..500).contains(&refused.status);
        refused.body.holds(is, "a refusal (4xx): ttl_seconds is 60 to 604800")?;
    }
    Ok(())
}

async fn token(t: &Trial) -> Ended {
    let session = begun(t).await?;
    let made = export(t, &session, 3600).await?;
    let token = roaming_token(&made)?;
    let parts: Vec<&str> = token.split('.').collect();
    let [head, payload, signature] = parts[..] else {
        return Err(made.wrong("a compact JWT of three parts in `roaming_token`"));
    };
    let read = |part: &str| -> Option<Value> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
    };
    let (Some(head), Some(payload)) = (read(head), read(payload)) else {
        return Err(made.wrong("a JWT whose head and payload are JSON"));
    };
    let came = format!("{head} {payload}");
    let says = |is: bool, expected: &str| t.holds(is, &made.sent, expected, &came);
    says(!signature.is_empty(), "a signature")?;
    says(head["alg"] == "HS256" || head["alg"] == "EdDSA", "alg HS256 (EdDSA with federation)")?;
    says(payload["sub"] == made.json["export_id"], "sub = the export's id")?;
    says(payload["sid"] == session.id, "sid = the session's id")?;
    let (iat, exp) = (payload["iat"].as_i64(), payload["exp"].as_i64());
    let (Some(iat), Some(exp)) = (iat, exp) else {
        return Err(Stop::broken(&made.sent, "numbers in iat and exp", came));
    };
    says((exp - iat - 3600).abs() <= 5, "exp = iat + the 3600 seconds that were asked for")
}
