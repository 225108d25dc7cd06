//! Turns that are shown while they are made.

use serde_json::json;

use super::tether::{CONTENT, drained};
use crate::came::Came;
use crate::check::{Check, Need, must, ours, run, should};
use crate::model::Act;
use crate::socket::Socket;
use crate::trial::{GIVEN_UP, PENDING, Trial, Way, desktop};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L2-07",
        "live output comes as chunks that are the answer",
        "Live output: TURN_CHUNK {chunk_id, delta, session_id} ... TURN_COMPLETE {chunk_id, \
         session_id}; chunk_id is the turn's id",
        run!(chunks),
    ),
    ours(
        "SBP-L2-08",
        "a surface that comes mid-sentence gets what exists, then the rest",
        "A surface that attaches while a turn is being generated gets what exists so far as one \
         TURN_CHUNK, then the rest live (ours)",
        run!(mid_sentence),
    )
    .needing(&[Need::Model]),
    should(
        "SBP-L2-09",
        "a surface that does not stream gets whole turns",
        "A surface without \"streaming\" in a non-empty ui_capabilities gets whole turns \
         (TETHER_TURN), not chunks",
        run!(whole_turns),
    ),
    must(
        "SBP-L2-11",
        "a turn runs to its end although its surface has gone",
        "The agent never knows whether a surface is attached: turns run to the end with none",
        run!(runs_on),
    )
    .needing(&[Need::Model]),
];

/// The text of the chunks of a live turn, and its `TURN_COMPLETE`.
pub(in crate::sbp) async fn live(socket: &mut Socket) -> Result<(String, Came), Stop> {
    let (mut text, mut id) = (String::new(), None);
    loop {
        let frame = socket.next().await?;
        match frame.kind() {
            "TURN_CHUNK" => {
                let chunk = frame.text(&["/chunk_id"])?.to_owned();
                let same = id.is_none_or(|id| id == chunk);
                frame.holds(same, "one `chunk_id` for the whole turn")?;
                id = Some(chunk);
                let delta = frame.json["delta"].as_str().or(frame.json["chunk"].as_str());
                text += delta.unwrap_or_default();
            }
            "TURN_COMPLETE" => {
                let same = id.as_deref() == frame.json["chunk_id"].as_str();
                frame.holds(same, "TURN_COMPLETE with the `chunk_id` of its chunks")?;
                return Ok((text, frame));
            }
            _ => {}
        }
    }
}

async fn chunks(t: &Trial) -> Ended {
    t.shows_live().await?;
    let session = t.session().await?;
    let mut socket = t.attach_desktop(&session).await?;
    let script = t.script(vec![Act::say("One, "), Act::say("two, "), Act::say("three.")]);
    let prompt = script.map_or_else(|_| "Count to three.".into(), |script| script.prompt());
    let running = t.begin(&session, &prompt);
    let (text, end) = live(&mut socket).await?;
    end.is(&["/session_id"], session.id.as_str())?;
    let answered = running.turn().await?.text;
    end.holds(text == answered, &format!("chunks that are the answer {answered:?}"))?;
    socket.confirm_and_detach().await?;
    t.until(&session, "no turn pending, because the live turn arrived", |seen| {
        PENDING.iter().any(|name| seen.pointer(name) == Some(&json!(0)))
    })
    .await
    .map(drop)
}

async fn mid_sentence(t: &Trial) -> Ended {
    t.shows_live().await?;
    let session = t.session().await?;
    // The first surface makes the server stream from its model.
    let mut first = t.attach_desktop(&session).await?;
    let script = t.script(vec![Act::say("Begun, "), Act::Hold, Act::say("and ended.")])?;
    let running = t.begin(&session, &script.prompt());
    first.until("TURN_CHUNK").await?;
    let mut second = t.attach_desktop(&session).await?;
    let chunk = second.until("TURN_CHUNK").await?;
    chunk.is(&["/delta", "/chunk"], "Begun, ")?;
    script.open();
    let rest = second.until("TURN_CHUNK").await?;
    rest.is(&["/delta", "/chunk"], "and ended.")?;
    second.until("TURN_COMPLETE").await?;
    running.turn().await.map(drop)
}

async fn whole_turns(t: &Trial) -> Ended {
    t.shows_live().await?;
    let session = t.session().await?;
    let context = json!({ "device_type": "desktop", "ui_capabilities": ["text", "markdown"] });
    let (mut socket, _) = t.attach(&session, context).await?;
    let answered = t.say(&session, "Hello.").await?.text;
    let frame = socket.next().await?;
    frame.holds(frame.kind() == "TETHER_TURN", "a whole turn as TETHER_TURN, and no chunks")?;
    frame.holds(frame.text(CONTENT)? == answered, &format!("the answer {answered:?}"))?;
    socket.confirm_and_detach().await
}

async fn runs_on(t: &Trial) -> Ended {
    t.shows_live().await?;
    let session = t.session().await?;
    let mut socket = t.attach_desktop(&session).await?;
    let script = t.script(vec![Act::say("Begun, "), Act::Hold, Act::say("and ended alone.")])?;
    let running = t.begin(&session, &script.prompt());
    socket.until("TURN_CHUNK").await?;
    socket.die();
    // The HTTP caller goes, too: nobody is there.
    running.hang_up();
    // A server that does not say so is asked all the same.
    let _ = t.until_left(&session).await;
    script.hung_up_within(GIVEN_UP).await;
    script.open();
    t.until(&session, "step_count = 1", |seen| seen["step_count"] == 1).await?;
    if t.tether().await? == Way::Hook {
        // What was asked over HTTP does not wait there; it ran to its end.
        return Ok(());
    }
    let (mut again, _) = t.attach(&session, desktop()).await?;
    drained(&mut again, &[script.text()]).await?;
    again.confirm_and_detach().await
}
