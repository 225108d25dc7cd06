//! The states of a session.

use serde_json::json;

use super::tether::drained;
use crate::check::{Check, Need, must, run, should};
use crate::model::Act;
use crate::restart::End;
use crate::trial::{As, COMPLETIONS, PENDING, Session, Trial, Way, desktop, has_status};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L2-10",
        "DETACH ends with close 1000, and both it and a lost connection leave the Tether active",
        "DETACH -> Tether active, close 1000. An unclean drop does the same",
        run!(detach),
    ),
    must(
        "SBP-L2-13",
        "a session is idle, running, suspended and running again",
        "Lifecycle: idle->running (first turn), running->suspended (surface gone), \
         suspended->running (attach, or explicit resume)",
        run!(states),
    ),
    must(
        "SBP-L2-13b",
        "a turn that kill -9 interrupted is run again",
        "A restart never drops a running or suspended session silently: an interrupted turn is run \
         again from the last snapshot, once",
        run!(run_again),
    )
    .needing(&[Need::Model, Need::Restart]),
    should(
        "SBP-L2-14",
        "every turn has a snapshot",
        "Snapshots: checkpoint every checkpoint_every turns",
        run!(snapshots),
    ),
    must(
        "SBP-L2-15",
        "a suspended session is answered with 202, and nothing is run",
        "A suspended session called by X-Session-Token without sbp.session_id and without \
         force_new_session -> 202 {sbp:{resume_available:true, session_id, resume_prompt, \
         last_checkpoint, step_count, snapshot_id}}; nothing is run",
        run!(suspended),
    ),
    must(
        "SBP-L2-15b",
        "a session that never had a surface is not suspended",
        "A session that never had a surface is never \"suspended\" by that rule",
        run!(never_attached),
    ),
];

async fn is_suspended(t: &Trial, session: &Session) -> Ended {
    t.until(session, "status \"suspended\"", |seen| seen["status"] == "suspended").await.map(drop)
}

/// A session with one turn, whose surface is gone.
async fn left(t: &Trial) -> Result<Session, Stop> {
    let session = t.session().await?;
    t.say(&session, "Hello.").await?;
    t.attach_desktop(&session).await?.confirm_and_detach().await?;
    is_suspended(t, &session).await?;
    Ok(session)
}

async fn detach(t: &Trial) -> Ended {
    for is_clean in [true, false] {
        let session = t.session().await?;
        let mut socket = t.attach_desktop(&session).await?;
        if is_clean {
            socket.send(json!({ "type": "DETACH" })).await?;
            socket.is_closed(1000).await?;
        } else {
            socket.die();
        }
        t.until_left(&session).await?;
        let missed = t.missed_turns(&session, 1).await?;
        let (mut again, attached) = t.attach(&session, desktop()).await?;
        attached.holds(attached.number(PENDING)? == 1, "the turn pending that was missed")?;
        drained(&mut again, &missed).await?;
        again.confirm_and_detach().await?;
    }
    Ok(())
}

async fn states(t: &Trial) -> Ended {
    let session = t.session().await?;
    has_status(&t.look(&session).await?.body, "idle")?;
    t.say(&session, "Hello.").await?;
    has_status(&t.look(&session).await?.body, "running")?;
    let socket = t.attach_desktop(&session).await?;
    has_status(&t.look(&session).await?.body, "running")?;
    socket.die();
    is_suspended(t, &session).await?;
    let again = t.attach_desktop(&session).await?;
    has_status(&t.look(&session).await?.body, "running")?;
    again.detach().await?;
    is_suspended(t, &session).await?;
    // Naming the session resumes it.
    t.say(&session, "And again.").await?;
    has_status(&t.look(&session).await?.body, "running")
}

async fn run_again(t: &Trial) -> Ended {
    t.shows_live().await?;
    let session = t.session().await?;
    let mut socket = t.attach_desktop(&session).await?;
    let script = t.script(vec![Act::say("Begun, "), Act::Hold, Act::say("and ended.")])?;
    let running = t.begin(&session, &script.prompt());
    socket.until("TURN_CHUNK").await?;
    t.restart(End::Kill).await?;
    drop((running, socket));
    script.open();
    t.until(&session, "step_count = 1: the turn was run again", |seen| seen["step_count"] == 1)
        .await?;
    let times = script.times();
    t.holds(
        times == 2,
        "kill -9 in a turn",
        "the model asked once more",
        &format!("{times} times"),
    )?;
    if t.tether().await? == Way::Hook {
        // What was asked over HTTP does not wait there; it was run again.
        return Ok(());
    }
    let (mut again, _) = t.attach(&session, desktop()).await?;
    drained(&mut again, &[script.text()]).await?;
    again.confirm_and_detach().await
}

async fn snapshots(t: &Trial) -> Ended {
    let session = t.session().await?;
    let first = t.say(&session, "Hello.").await?.answer.body;
    let second = t.say(&session, "And again.").await?.answer.body;
    let one = first.text(&["/sbp/snapshot_id"])?;
    let differs = second.text(&["/sbp/snapshot_id"])? != one;
    second.holds(differs, "another snapshot after another turn")
}

async fn suspended(t: &Trial) -> Ended {
    let session = left(t).await?;
    let mut body = t.asking(None, "Are you there?");
    if let Some(fields) = body.as_object_mut() {
        fields.remove("sbp");
    }
    let by = As::Session(&session);
    let told = t.post(COMPLETIONS, by, body.clone()).await?.is(&[202])?.body;
    told.is(&["/sbp/resume_available"], true)?;
    told.is(&["/sbp/session_id"], session.id.as_str())?;
    told.is(&["/sbp/step_count"], 1)?;
    for name in ["/sbp/resume_prompt", "/sbp/last_checkpoint", "/sbp/snapshot_id"] {
        told.field(&[name])?;
    }
    t.look(&session).await?.body.is(&["/step_count"], 1)?;
    body["sbp"] = json!({ "force_new_session": true });
    let fresh = t.post(COMPLETIONS, by, body).await?.is(&[200])?.body;
    let other = fresh.text(&["/sbp/session_id"])? != session.id;
    fresh.holds(other, "another session, because of force_new_session")?;
    let resumed = t.say(&session, "Go on.").await?.answer.body;
    resumed.is(&["/sbp/session_id"], session.id.as_str())?;
    resumed.is(&["/sbp/step_count"], 2)
}

async fn never_attached(t: &Trial) -> Ended {
    let session = t.session().await?;
    t.say(&session, "Hello.").await?;
    let mut body = t.asking(None, "And again.");
    if let Some(fields) = body.as_object_mut() {
        fields.remove("sbp");
    }
    let answer = t.post(COMPLETIONS, As::Session(&session), body).await?.is(&[200])?;
    answer.body.is(&["/sbp/session_id"], session.id.as_str())
}
