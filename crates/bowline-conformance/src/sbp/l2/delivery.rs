//! When a turn counts as received.

use serde_json::json;

use super::tether::{SEQ, TURN_ID, drained};
use crate::check::{Check, Need, must, ours, run};
use crate::model::Act;
use crate::trial::{PENDING, Trial, desktop};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L2-06",
        "turns stay pending when the socket dies before it is known that they arrived",
        "A turn leaves the Tether only when the surface is known to have it. A socket that dies \
         first leaves the turns pending",
        run!(not_by_sending),
    ),
    must(
        "SBP-L2-06b",
        "turns that arrived do not come again",
        "after the drain the gateway sends a WebSocket Ping as a barrier; its Pong proves that all \
         before it arrived",
        run!(by_arriving),
    ),
    must(
        "SBP-L2-07b",
        "a live turn is pending whole if the surface drops in the middle",
        "Delivery of a live turn is confirmed by the same barrier; if the surface drops first, the \
         whole turn is pending",
        run!(dropped_live),
    )
    .needing(&[Need::Model]),
    ours(
        "SBP-L2-21",
        "with `ack: explicit` only TETHER_ACK confirms",
        "A surface may declare \"ack\": \"explicit\": then only TETHER_ACK confirms (ours)",
        run!(explicit),
    ),
];

async fn not_by_sending(t: &Trial) -> Ended {
    let session = t.session().await?;
    let texts = t.pending_turns(&session, 3).await?;
    let mut first = t.attach_desktop(&session).await?;
    // The last turn is read, and nothing after it: no Pong goes back.
    let before = drained(&mut first, &texts).await?;
    first.die();
    // Before the server sees the end, an attach takes over, and what the end does to the turns is not seen.
    let _ = t.until_left(&session).await;
    let (mut second, attached) = t.attach(&session, desktop()).await?;
    let expected =
        "the three turns pending again: the socket died before any sign that they arrived";
    attached.holds(attached.number(PENDING)? == 3, expected)?;
    let again = drained(&mut second, &texts).await?;
    for (before, again) in before.iter().zip(&again) {
        again.is(TURN_ID, before.text(TURN_ID)?)?;
    }
    second.confirm_and_detach().await
}

async fn by_arriving(t: &Trial) -> Ended {
    let session = t.session().await?;
    let texts = t.pending_turns(&session, 2).await?;
    let mut first = t.attach_desktop(&session).await?;
    drained(&mut first, &texts).await?;
    first.confirm_and_detach().await?;
    t.until(&session, "no turn pending", |seen| {
        PENDING.iter().any(|name| seen.pointer(name) == Some(&json!(0)))
    })
    .await?;
    let more = t.missed_turns(&session, 1).await?;
    let (mut second, attached) = t.attach(&session, desktop()).await?;
    attached.holds(attached.number(PENDING)? == 1, "only the turn that did not come yet")?;
    drained(&mut second, &more).await?;
    second.confirm_and_detach().await
}

async fn dropped_live(t: &Trial) -> Ended {
    t.shows_live().await?;
    let session = t.session().await?;
    let mut socket = t.attach_desktop(&session).await?;
    let script = t.script(vec![Act::say("Half, "), Act::Hold, Act::say("and half.")])?;
    let running = t.begin(&session, &script.prompt());
    let chunk = socket.until("TURN_CHUNK").await?;
    socket.die();
    // The turn has to end without its surface. A server that does not say so is asked all the same.
    let _ = t.until_left(&session).await;
    script.open();
    let text = running.turn().await?.text;
    chunk.holds(text == script.text(), "the whole answer over HTTP")?;
    let (mut again, attached) = t.attach(&session, desktop()).await?;
    if attached.number(PENDING)? == 0 && t.answers_count_as_read().await? {
        let why = "an answer over HTTP counts as read here, and no other turn is live";
        return Err(Stop::unable(why));
    }
    attached
        .holds(attached.number(PENDING)? == 1, "the turn pending, because the surface dropped")?;
    drained(&mut again, &[text]).await?;
    again.confirm_and_detach().await
}

async fn explicit(t: &Trial) -> Ended {
    let session = t.session().await?;
    let texts = t.pending_turns(&session, 2).await?;
    let fields = json!({ "surface_context": desktop(), "ack": "explicit" });
    let (mut socket, _) = t.attach_saying(&session, fields.clone()).await?;
    let frames = drained(&mut socket, &texts).await?;
    // All is read, and pongs are sent; the first turn alone is confirmed.
    let seq = frames[0].number(SEQ)?;
    socket.send(json!({ "type": "TETHER_ACK", "seq": seq })).await?;
    socket.confirm_and_detach().await?;
    let (_, attached) = t.attach_saying(&session, fields).await?;
    attached.holds(attached.number(PENDING)? == 1, "one turn pending: the other was confirmed")
}
