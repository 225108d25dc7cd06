//! Answers that end badly.

use reqwest::Method;
use serde_json::json;

use super::streams::events;
use crate::check::{Check, Need, must, run};
use crate::model::Act;
use crate::trial::{As, COMPLETIONS, Trial};
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L1-13",
        "an answer that the model broke off before its first word is an error, and not stored",
        "An answer that ended badly is never called complete. Before the first byte: 502 and \
         nothing stored",
        run!(before_the_first_word),
    )
    .needing(&[Need::Model]),
    must(
        "SBP-L1-13b",
        "an answer that the model broke off in the middle is not called complete",
        "Later: what came is kept with status interrupted, the caller and every surface are told",
        run!(in_the_middle),
    )
    .needing(&[Need::Model]),
];

async fn before_the_first_word(t: &Trial) -> Ended {
    for acts in [vec![Act::Fail(500)], vec![Act::BreakOff]] {
        let session = t.session().await?;
        let script = t.script(acts)?;
        let body = t.asking(Some(&session), &script.prompt());
        let answer = t.post(COMPLETIONS, As::Session(&session), body).await?;
        answer.body.holds(answer.status >= 500, "a status of 500 or more")?;
        t.look(&session).await?.body.is(&["/step_count"], 0)?;
    }
    Ok(())
}

async fn in_the_middle(t: &Trial) -> Ended {
    let session = t.session().await?;
    let script = t.script(vec![Act::say("Half of it, "), Act::BreakOff])?;
    let mut body = t.asking(Some(&session), &script.prompt());
    let whole = t.post(COMPLETIONS, As::Session(&session), body.clone()).await?;
    whole.body.holds(whole.status >= 400, "an error, not an answer that looks complete")?;
    body["stream"] = json!(true);
    // The connection may end without an answer: that says it, too. An answer without an end does not.
    let sent = t.wire.sent(&format!("POST {COMPLETIONS}"), Some(&body));
    let request = t.wire.request(Method::POST, COMPLETIONS, As::Session(&session)).json(&body);
    let Some(stream) = t.wire.exchange_or_cut(request, sent).await? else { return Ok(()) };
    let done = events(&stream).contains(&"[DONE]");
    stream.body.holds(!done, "a stream that does not end with [DONE]")
}
