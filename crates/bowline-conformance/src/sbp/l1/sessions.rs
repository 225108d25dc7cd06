//! Making sessions and looking at them.

use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use crate::check::{Check, must, run};
use crate::trial::{As, COMPLETIONS, PENDING, Session, Trial, has_status};
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L1-01",
        "a session is made, idle and with a token",
        "POST /v1/sessions creates a session: 201 {session_id, session_token, agent_id, \
         status:\"idle\", step_count:0, created_at}",
        run!(made),
    ),
    must(
        "SBP-L1-01b",
        "a session may have its caller's own token",
        "session_token (caller's own, at least 32 characters)",
        run!(own_token),
    ),
    must(
        "SBP-L1-03",
        "a session shows where it stands, and an unknown one is 404",
        "GET /v1/sessions/{id}: status, step_count, agent_id, created_at, updated_at, \
         tether_turns_pending, surface (or null)",
        run!(looked_at),
    ),
    must(
        "SBP-L1-05",
        "the agent is the header's, else the session's, else `default`",
        "Agent identity is stable across calls: X-Agent-ID header, else the session's agent, else \
         `default`",
        run!(agent),
    ),
];

async fn made(t: &Trial) -> Ended {
    let body = json!({ "agent_id": "conformance", "metadata": { "suite": "conformance" } });
    let made = t.post("/v1/sessions", As::Caller, body).await?.is(&[201])?.body;
    made.is(&["/agent_id"], "conformance")?;
    has_status(&made, "idle")?;
    made.is(&["/step_count"], 0)?;
    made.text(&["/created_at"])?;
    let session = Session::of(&made, &["/session_id"], &["/session_token"])?;
    let other = t.session().await?;
    made.holds(session.id != other.id, "another id for each session")?;
    made.holds(session.token != other.token, "another token for each session")?;
    // With no body at all, everything is optional.
    let request = t.wire.request(Method::POST, "/v1/sessions", As::Caller);
    let sent = t.wire.sent("POST /v1/sessions without a body", None);
    t.wire.exchange(request, sent).await?.is(&[201]).map(drop)
}

async fn own_token(t: &Trial) -> Ended {
    let token = format!("conformance-{}", Uuid::new_v4().simple());
    let body = json!({ "session_token": token });
    let made = t.post("/v1/sessions", As::Caller, body).await?.is(&[201])?.body;
    let session = Session { id: made.text(&["/session_id"])?.to_owned(), token };
    made.holds(
        made.json["session_token"].is_null() || made.json["session_token"] == session.token,
        "the caller's token, or none, in `session_token`",
    )?;
    let path = format!("/v1/sessions/{}", session.id);
    let seen = t.get(&path, As::TokenAlone(&session.token)).await?.is(&[200])?;
    seen.body.is(&["/session_id"], session.id.as_str())
}

async fn looked_at(t: &Trial) -> Ended {
    let session = t.session().await?;
    t.say(&session, "Hello.").await?;
    let seen = t.look(&session).await?.body;
    has_status(&seen, "running")?;
    seen.is(&["/step_count"], 1)?;
    for name in ["/agent_id", "/created_at", "/updated_at"] {
        seen.text(&[name])?;
    }
    seen.number(PENDING)?;
    seen.field(&["/surface", "/surface_context"])?;
    // Without a token: that of another session would be refused before anything is looked up.
    let unknown = format!("/v1/sessions/{}", Uuid::new_v4());
    let missing = t.get(&unknown, As::Caller).await?;
    missing.is_error(404, "SBP_SESSION_NOT_FOUND")
}

async fn agent(t: &Trial) -> Ended {
    let turn = async |session: Option<&Session>, agent: Option<&str>| {
        let by = session.map_or(As::Caller, As::Session);
        let body = t.asking(session, "Hello.");
        let what = match agent {
            Some(agent) => format!("POST {COMPLETIONS} (X-Agent-ID: {agent})"),
            None => format!("POST {COMPLETIONS}"),
        };
        let sent = t.wire.sent(&what, Some(&body));
        let mut request = t.wire.request(Method::POST, COMPLETIONS, by).json(&body);
        if let Some(agent) = agent {
            request = request.header("X-Agent-ID", agent);
        }
        t.wire.exchange(request, sent).await?.is(&[200])
    };
    for (agent, expected) in [(Some("conformance-agent"), "conformance-agent"), (None, "default")] {
        let made = turn(None, agent).await?.body;
        let session = Session::of(&made, &["/sbp/session_id"], &["/sbp/session_token"])?;
        t.look(&session).await?.body.is(&["/agent_id"], expected)?;
        turn(Some(&session), None).await?;
        t.look(&session).await?.body.is(&["/agent_id"], expected)?;
    }
    Ok(())
}
