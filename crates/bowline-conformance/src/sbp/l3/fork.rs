//! Forks.

use serde_json::json;

use super::export::path;
use crate::came::Came;
use crate::check::{Check, Need, run, should};
use crate::trial::{As, Session, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    should(
        "SBP-L3-11",
        "a fork is a session of its own",
        "POST .../{id}/fork {label} -> 201 {fork_session_id, session_token, fork_session_token, \
         origin_session_id, fork_label, fork_point_msg, fork_point_step}",
        run!(forks),
    ),
    should(
        "SBP-L3-11b",
        "a fork knows what was said before it, and nothing that its origin said later",
        "Must not copy history: share it",
        run!(shares),
    )
    .needing(&[Need::Model]),
];

pub(super) async fn forked(t: &Trial, session: &Session) -> Result<(Session, Came), Stop> {
    let body = json!({ "label": "conformance" });
    let came = t.post(&path(session, "fork"), As::Session(session), body).await?;
    let came = came.offered("forks")?.is(&[201])?.body;
    let tokens = ["/fork_session_token", "/session_token"];
    Ok((Session::of(&came, &["/fork_session_id"], &tokens)?, came))
}

async fn forks(t: &Trial) -> Ended {
    let session = t.session().await?;
    t.say(&session, "Hello.").await?;
    let (fork, came) = forked(t, &session).await?;
    came.holds(fork.id != session.id, "another session")?;
    came.is(&["/origin_session_id"], session.id.as_str())?;
    came.is(&["/fork_label"], "conformance")?;
    came.field(&["/fork_point_msg"])?;
    came.is(&["/fork_point_step"], 1)?;
    t.say(&fork, "One way.").await?;
    t.look(&fork).await?.body.is(&["/step_count"], 2)?;
    t.look(&session).await?.body.is(&["/step_count"], 1)
}

async fn shares(t: &Trial) -> Ended {
    let session = t.session().await?;
    let (before, after) = (t.saying("Said before.")?, t.saying("Said after.")?);
    t.say(&session, &before.prompt()).await?;
    let (fork, _) = forked(t, &session).await?;
    t.say(&session, &after.prompt()).await?;
    let question = t.saying("Next.")?;
    t.say(&fork, &question.prompt()).await?;
    let asked = question.asked(1).await?;
    let knows = asked.count(&before.text()) == 1 && asked.count(&after.mark()) == 0;
    let expected = "upstream: what was said before the fork, and not what the origin said later";
    t.holds(knows, "a turn in the fork", expected, &asked.body.to_string())
}
