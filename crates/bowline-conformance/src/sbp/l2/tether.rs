//! Turns that wait for a surface.

use std::collections::BTreeSet;

use serde_json::json;

use crate::came::Came;
use crate::check::{Check, Need, must, ours, run, should};
use crate::model::Act;
use crate::restart::End;
use crate::socket::Socket;
use crate::trial::{As, COMPLETIONS, PENDING, Trial, attach_frame, desktop};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L2-05",
        "pending turns come oldest first, as TETHER_TURN",
        "Then one TETHER_TURN per pending turn, oldest first: {turn_index (0-based in this drain), \
         turn_id, role, content, model_used, created_at, session_id}",
        run!(oldest_first),
    ),
    must(
        "SBP-L2-05b",
        "nothing live comes before SESSION_ATTACHED, nor before what is pending",
        "before anything live",
        run!(before_anything_live),
    )
    .needing(&[Need::Model]),
    must(
        "SBP-L2-12",
        "what is pending survives kill -9, in order",
        "The Tether is durable storage visible to every replica; never process memory",
        run!(durable),
    )
    .needing(&[Need::Restart]),
    should(
        "SBP-L2-19",
        "a turn that was answered over HTTP is still pending",
        "A turn that was answered over HTTP is still pending until a surface has it",
        run!(still_pending),
    ),
    ours(
        "SBP-L2-19b",
        "`sbp.tether: false` says that the caller is the only reader",
        "sbp.tether:false in the request says that the HTTP caller is the only reader (ours)",
        run!(only_reader),
    ),
];

/// The text of a `TETHER_TURN`: flat, or in its field `turn`.
pub(super) const CONTENT: &[&str] = &["/content", "/turn/content"];
/// The same of its id.
pub(super) const TURN_ID: &[&str] = &["/turn_id", "/turn/turn_id"];
/// The same of its place in the log.
pub(super) const SEQ: &[&str] = &["/seq", "/turn/seq"];

/// Reads pending turns, and expects these texts in this order.
pub(super) async fn drained(socket: &mut Socket, texts: &[String]) -> Result<Vec<Came>, Stop> {
    let mut frames = Vec::new();
    for (n, text) in texts.iter().enumerate() {
        let frame = socket.next().await?;
        let expected = format!("TETHER_TURN number {n} with the content {text:?}");
        frame.holds(frame.kind() == "TETHER_TURN", &expected)?;
        frame.holds(frame.text(CONTENT)? == text, &expected)?;
        frames.push(frame);
    }
    Ok(frames)
}

async fn oldest_first(t: &Trial) -> Ended {
    let session = t.session().await?;
    let texts = t.pending_turns(&session, 3).await?;
    let (mut socket, attached) = t.attach(&session, desktop()).await?;
    attached.holds(attached.number(PENDING)? == 3, "three turns pending")?;
    let mut ids = Vec::new();
    for (n, frame) in drained(&mut socket, &texts).await?.iter().enumerate() {
        frame.is(&["/turn_index", "/turn/turn_index"], n)?;
        frame.is(&["/role", "/turn/role"], "assistant")?;
        frame.field(&["/model_used", "/turn/model_used"])?;
        frame.text(&["/created_at", "/turn/created_at"])?;
        frame.is(&["/session_id"], session.id.as_str())?;
        ids.push(frame.text(TURN_ID)?.to_owned());
    }
    let each: BTreeSet<_> = ids.iter().collect();
    t.holds(each.len() == 3, "three turns", "another `turn_id` for each", &ids.join(", "))?;
    socket.confirm_and_detach().await
}

async fn before_anything_live(t: &Trial) -> Ended {
    let session = t.session().await?;
    let texts = t.pending_turns(&session, 2).await?;
    let script = t.script(vec![Act::say("Live "), Act::Hold, Act::say("text.")])?;
    let running = t.begin(&session, &script.prompt());
    script.asked(1).await?;
    let (mut early, _) = t.attach(&session, desktop()).await?;
    drained(&mut early, &texts).await?;
    // Open, and not attached while the turn goes on: nothing of the session may come here.
    let mut late = t.socket(&session).await?;
    script.open();
    running.turn().await?;
    late.send(attach_frame(&session, json!({ "surface_context": desktop() }))).await?;
    let first = late.next().await?;
    first.holds(first.kind() == "SESSION_ATTACHED", "SESSION_ATTACHED before anything else")
}

async fn durable(t: &Trial) -> Ended {
    let session = t.session().await?;
    let texts = t.pending_turns(&session, 3).await?;
    t.restart(End::Kill).await?;
    let (mut socket, attached) = t.attach(&session, desktop()).await?;
    attached.holds(attached.number(PENDING)? == 3, "three turns pending, as before kill -9")?;
    drained(&mut socket, &texts).await?;
    socket.confirm_and_detach().await
}

async fn still_pending(t: &Trial) -> Ended {
    let session = t.session().await?;
    let text = t.say(&session, "Hello.").await?.text;
    let seen = t.look(&session).await?.body;
    seen.holds(seen.number(PENDING)? == 1, "one turn pending")?;
    let (mut socket, _) = t.attach(&session, desktop()).await?;
    drained(&mut socket, &[text]).await?;
    socket.confirm_and_detach().await
}

async fn only_reader(t: &Trial) -> Ended {
    let session = t.session().await?;
    let mut body = t.asking(Some(&session), "Hello.");
    body["sbp"]["tether"] = json!(false);
    let by = As::Session(&session);
    t.post(COMPLETIONS, by, body).await?.is(&[200])?;
    let seen = t.look(&session).await?.body;
    seen.holds(seen.number(PENDING)? == 0, "no turn pending")
}
