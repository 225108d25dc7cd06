//! Several surfaces, one after the other and side by side.

use serde_json::json;

use super::live::live;
use super::tether::drained;
use crate::check::{Check, must, ours, run};
use crate::trial::{Trial, desktop};
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L2-16",
        "a second attach takes over, and loses and reorders nothing",
        "Attach is idempotent; a second attach takes the session over and no turn is lost or \
         reordered in between",
        run!(takes_over),
    ),
    ours(
        "SBP-L2-16b",
        "the older socket gets close 4009",
        "the older socket gets close 4009 \"replaced\" (ours)",
        run!(replaced),
    ),
    ours(
        "SBP-L2-20",
        "surfaces that join are beside each other, and all get live output",
        "ATTACH_SESSION {join: true} attaches beside others. All get live output (ours)",
        run!(joined),
    ),
];

async fn takes_over(t: &Trial) -> Ended {
    let session = t.session().await?;
    let texts = t.pending_turns(&session, 2).await?;
    // The first reads nothing of what is pending.
    let first = t.attach_desktop(&session).await?;
    let mut second = t.attach_desktop(&session).await?;
    drained(&mut second, &texts).await?;
    t.shows_live().await?;
    let running = t.begin(&session, "Hello.");
    let (text, end) = live(&mut second).await?;
    let answered = running.turn().await?.text;
    end.holds(text == answered, &format!("the live answer {answered:?} on the second socket"))?;
    drop(first);
    second.confirm_and_detach().await
}

async fn replaced(t: &Trial) -> Ended {
    let session = t.session().await?;
    let mut first = t.attach_desktop(&session).await?;
    let _second = t.attach_desktop(&session).await?;
    first.is_closed(4009).await
}

async fn joined(t: &Trial) -> Ended {
    t.shows_live().await?;
    let session = t.session().await?;
    let mut sockets = Vec::new();
    for name in ["conformance-phone", "conformance-laptop"] {
        let mut context = desktop();
        context["surface_id"] = json!(name);
        let fields = json!({ "surface_context": context, "join": true });
        sockets.push(t.attach_saying(&session, fields).await?.0);
    }
    let running = t.begin(&session, "Hello.");
    let mut texts = Vec::new();
    for socket in &mut sockets {
        texts.push(live(socket).await?);
    }
    let answered = running.turn().await?.text;
    for (text, end) in texts {
        end.holds(text == answered, &format!("the live answer {answered:?} on both sockets"))?;
    }
    Ok(())
}
