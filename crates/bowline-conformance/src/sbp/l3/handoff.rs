//! Handoffs.

use reqwest::Method;
use serde_json::json;

use super::export::path;
use super::fork::forked;
use crate::came::Came;
use crate::check::{Check, Need, must, run, should};
use crate::trial::{As, COMPLETIONS, Session, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    should(
        "SBP-L3-10",
        "a handoff makes the next agent's session and suspends the source",
        "POST .../{id}/handoff {to_agent_id, handoff_message, reason} -> 201 {session_id, \
         new_session_id, session_token, new_session_token, from_session_id, source_session_id, \
         to_agent_id, export_id, origin_export_id}; suspend source",
        run!(hands_off),
    ),
    should(
        "SBP-L3-10b",
        "the next agent knows what was said, and the message of the handoff",
        "export + import + bridge message + suspend source, atomically",
        run!(knows),
    )
    .needing(&[Need::Model]),
    must(
        "SBP-L3-14",
        "an ended session is exported, and takes no more turns",
        "Export of a completed or failed session is allowed; running another turn in it is 409",
        run!(ended),
    ),
    should(
        "SBP-L3-14b",
        "an ended session is forked and handed off",
        "Handoff and fork of a completed or failed session are allowed",
        run!(goes_on_elsewhere),
    ),
];

/// What the first agent tells the next.
const MESSAGE: &str = "The itinerary is approved: book the morning flight.";

pub(super) async fn handed_off(t: &Trial, session: &Session) -> Result<(Session, Came), Stop> {
    let body = json!({
        "to_agent_id": "conformance-next", "handoff_message": MESSAGE, "reason": "conformance",
    });
    let came = t.post(&path(session, "handoff"), As::Session(session), body).await?;
    let came = came.offered("handoffs")?.is(&[201])?.body;
    let ids = ["/new_session_id", "/session_id"];
    let tokens = ["/new_session_token", "/session_token"];
    Ok((Session::of(&came, &ids, &tokens)?, came))
}

async fn hands_off(t: &Trial) -> Ended {
    let session = t.session().await?;
    t.say(&session, "Hello.").await?;
    let (next, came) = handed_off(t, &session).await?;
    came.holds(next.id != session.id, "another session")?;
    came.is(&["/source_session_id", "/from_session_id"], session.id.as_str())?;
    came.is(&["/to_agent_id"], "conformance-next")?;
    came.text(&["/export_id", "/origin_export_id"])?;
    t.look(&session).await?.body.is(&["/status"], "suspended")?;
    t.look(&next).await?.body.is(&["/agent_id"], "conformance-next")?;
    t.say(&next, "Go on.").await.map(drop)
}

async fn knows(t: &Trial) -> Ended {
    let session = t.session().await?;
    let script = t.saying("Two flights.")?;
    t.say(&session, &script.prompt()).await?;
    let (next, _) = handed_off(t, &session).await?;
    let question = t.saying("Booked.")?;
    t.say(&next, &question.prompt()).await?;
    let asked = question.asked(1).await?;
    let knows = asked.count(&script.mark()) == 1
        && asked.count(&script.text()) == 1
        && asked.count(MESSAGE) >= 1;
    let expected = "upstream: question, answer, and the message of the handoff";
    t.holds(knows, "a turn of the next agent", expected, &asked.body.to_string())
}

/// A session with one turn that has been completed.
async fn completed(t: &Trial) -> Result<Session, Stop> {
    let session = t.session().await?;
    t.say(&session, "Hello.").await?;
    // The path of the public suite, and one beside the session's others.
    let mut is_ended = false;
    for prefix in ["/v1/sbp/sessions", "/v1/sessions"] {
        let ending = format!("{prefix}/{}/status", session.id);
        let body = Some(json!({ "status": "completed" }));
        let by = As::Session(&session);
        is_ended = t.wire.call(Method::PATCH, &ending, by, body).await?.status == 200;
        if is_ended {
            break;
        }
    }
    if !is_ended {
        return Err(Stop::unable("no call of this server's ends a session"));
    }
    t.look(&session).await?.body.is(&["/status"], "completed")?;
    Ok(session)
}

async fn ended(t: &Trial) -> Ended {
    let session = completed(t).await?;
    let by = As::Session(&session);
    let turn = t.asking(Some(&session), "One more.");
    t.post(COMPLETIONS, by, turn).await?.is_error(409, "SBP_SESSION_CONFLICT")?;
    t.post(&path(&session, "export"), by, json!({})).await?.is(&[201]).map(drop)
}

async fn goes_on_elsewhere(t: &Trial) -> Ended {
    // First what the server does with a session that has not ended: it need not have either call.
    let other = t.session().await?;
    t.say(&other, "Hello.").await?;
    let forks = Stop::if_offered(forked(t, &other).await)?.is_some();
    let hands_off = Stop::if_offered(handed_off(t, &other).await)?.is_some();
    if !forks && !hands_off {
        return Err(Stop::unable("the server has neither forks nor handoffs"));
    }
    let session = completed(t).await?;
    if forks {
        forked(t, &session).await?;
    }
    if hands_off {
        handed_off(t, &session).await?;
    }
    Ok(())
}
