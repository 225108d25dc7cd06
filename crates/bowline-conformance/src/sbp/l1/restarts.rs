//! What survives the end of the server.

use crate::check::{Check, Need, must, run};
use crate::restart::End;
use crate::trial::Trial;
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L1-04",
        "sessions and turns survive kill -9",
        "Messages survive a gateway restart (kill -9 included). What was answered 200/201 is on disk",
        run!(killed),
    )
    .needing(&[Need::Restart]),
    must(
        "SBP-L1-04b",
        "sessions and turns survive a restart in order",
        "Messages survive a gateway restart",
        run!(stopped),
    )
    .needing(&[Need::Restart]),
];

async fn killed(t: &Trial) -> Ended {
    survives(t, End::Kill).await
}

async fn stopped(t: &Trial) -> Ended {
    survives(t, End::Stop).await
}

async fn survives(t: &Trial, end: End) -> Ended {
    let session = t.session().await?;
    // What the model said is seen in what it is told next; with another model, only the count.
    let script = t.saying("Kept on disk.").ok();
    let text = script.as_ref().map_or("Hello.".to_owned(), |script| script.prompt());
    t.say(&session, &text).await?;
    t.restart(end).await?;
    t.look(&session).await?.body.is(&["/step_count"], 1)?;
    let Some(script) = script else { return t.say(&session, "And again.").await.map(drop) };
    let next = t.saying("Next.")?;
    t.say(&session, &next.prompt()).await?;
    let asked = next.asked(1).await?;
    let kept = asked.count(&script.mark()) == 1 && asked.count(&script.text()) == 1;
    let expected = "upstream: question and answer from before the restart";
    t.holds(kept, &next.prompt(), expected, &asked.body.to_string())
}
