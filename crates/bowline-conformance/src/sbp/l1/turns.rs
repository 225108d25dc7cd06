//! Turns, their options and their answers.

use serde_json::{Value, json};

use crate::check::{Check, Need, must, ours, run, should};
use crate::trial::{Answer, As, COMPLETIONS, SESSION_TOKEN, Session, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L1-02",
        "a completion runs a turn and keeps it",
        "POST /v1/chat/completions (OpenAI shape) runs a turn and persists messages",
        run!(completes),
    ),
    should(
        "SBP-L1-02b",
        "/v1/completions is an alias, with messages or a prompt",
        "POST /v1/completions is an alias that takes the same body and also the legacy `prompt` \
         string",
        run!(alias),
    ),
    must(
        "SBP-L1-06",
        "the options of `sbp` are obeyed, and unknown ones ignored",
        "The request's sbp object: force_new_session, checkpoint_every, memory_retrieval, \
         session_id (explicit resume). Unknown keys are ignored",
        run!(options),
    ),
    must(
        "SBP-L1-07",
        "the answer says where the session stands",
        "The answer carries sbp: session_id, session_token (only when just created), snapshot_id, \
         resume_available, resume_prompt, last_checkpoint, step_count, cost_usd, model_routed_to; \
         and the header X-Session-Token",
        run!(info),
    ),
    must(
        "SBP-L1-11",
        "the stored history is put before what is new",
        "The caller sends only new messages; the gateway prepends the stored history when it calls \
         upstream",
        run!(history),
    )
    .needing(&[Need::Model]),
    ours(
        "SBP-L1-11b",
        "a caller that sends its history again is recognised",
        "A caller that resends history is recognised: nothing is stored or sent twice",
        run!(resent),
    )
    .needing(&[Need::Model]),
];

async fn completes(t: &Trial) -> Ended {
    let answer = t.post(COMPLETIONS, As::Caller, t.asking(None, "Hello.")).await?.is(&[200])?;
    let answer = answer.body;
    answer.is(&["/object"], "chat.completion")?;
    answer.text(&["/id"])?;
    answer.is(&["/choices/0/message/role"], "assistant")?;
    answer.text(&["/choices/0/message/content"])?;
    answer.text(&["/choices/0/finish_reason"])?;
    let session = Session::of(&answer, &["/sbp/session_id"], &["/sbp/session_token"])?;
    t.look(&session).await?.body.is(&["/step_count"], 1)?;
    t.say(&session, "And again.").await?;
    t.look(&session).await?.body.is(&["/step_count"], 2)
}

async fn alias(t: &Trial) -> Ended {
    let session = t.session().await?;
    let body = t.asking(Some(&session), "Hello.");
    let mut legacy = body.clone();
    legacy["prompt"] = json!("Hello.");
    if let Some(fields) = legacy.as_object_mut() {
        fields.remove("messages");
    }
    for (steps, body) in [(1, body), (2, legacy)] {
        let answer = t.post("/v1/completions", As::Session(&session), body).await?;
        let answer = answer.offered("the older completions")?.is(&[200])?;
        answer.body.text(&["/choices/0/message/content", "/choices/0/text"])?;
        t.look(&session).await?.body.is(&["/step_count"], steps)?;
    }
    Ok(())
}

async fn turn_with(t: &Trial, session: &Session, sbp: Value) -> Result<Answer, Stop> {
    let mut body = t.asking(None, "Hello.");
    body["sbp"] = sbp;
    t.post(COMPLETIONS, As::Session(session), body).await?.is(&[200])
}

async fn options(t: &Trial) -> Ended {
    let session = t.session().await?;
    let all = json!({
        "session_id": session.id, "checkpoint_every": 2, "memory_retrieval": false,
        "force_new_session": false, "no_such_option": { "of": ["any", "kind"] },
    });
    let resumed = turn_with(t, &session, all).await?.body;
    resumed.is(&["/sbp/session_id"], session.id.as_str())?;
    let fresh = turn_with(t, &session, json!({ "force_new_session": true })).await?.body;
    let made = Session::of(&fresh, &["/sbp/session_id"], &["/sbp/session_token"])?;
    fresh.holds(made.id != session.id, "another session, because of force_new_session")?;
    t.look(&session).await?.body.is(&["/step_count"], 1)
}

async fn info(t: &Trial) -> Ended {
    let first = t.post(COMPLETIONS, As::Caller, t.asking(None, "Hello.")).await?.is(&[200])?;
    let session = Session::of(&first.body, &["/sbp/session_id"], &["/sbp/session_token"])?;
    let header = first.headers.get(SESSION_TOKEN).and_then(|token| token.to_str().ok());
    first.body.holds(
        header == Some(session.token.as_str()),
        "the token in the header X-Session-Token, too",
    )?;
    for name in ["snapshot_id", "resume_prompt", "last_checkpoint"] {
        first.body.field(&[&format!("/sbp/{name}")])?;
    }
    let sbp = &first.body.json["sbp"];
    first
        .body
        .holds(sbp["resume_available"].is_boolean(), "a boolean in `sbp.resume_available`")?;
    first.body.holds(sbp["cost_usd"].is_number(), "a number in `sbp.cost_usd`")?;
    first.body.text(&["/sbp/model_routed_to"])?;
    first.body.is(&["/sbp/step_count"], 1)?;
    let second = t.say(&session, "And again.").await?.answer.body;
    second.is(&["/sbp/step_count"], 2)?;
    second.is(&["/sbp/session_id"], session.id.as_str())?;
    let again = second.json.pointer("/sbp/session_token").is_none_or(Value::is_null);
    second.holds(again, "no `sbp.session_token` in a session that was there before")
}

async fn history(t: &Trial) -> Ended {
    let session = t.session().await?;
    let (first, second) = (t.saying("The first answer.")?, t.saying("The second answer.")?);
    t.say(&session, &first.prompt()).await?;
    t.say(&session, &second.prompt()).await?;
    let asked = second.asked(1).await?;
    let said = asked.said();
    let at = |role: &str, part: &str| {
        said.iter().position(|(is, text)| is == role && text.contains(part))
    };
    let places =
        [at("user", &first.mark()), at("assistant", &first.text()), at("user", &second.mark())];
    let in_order = places.is_sorted() && places.iter().all(Option::is_some);
    let expected = "upstream: the first question, its answer, the second question, in this order";
    t.holds(in_order, &second.prompt(), expected, &asked.body.to_string())?;
    let once = asked.count(&first.mark()) == 1 && asked.count(&second.mark()) == 1;
    t.holds(once, &second.prompt(), "each message once", &asked.body.to_string())
}

async fn resent(t: &Trial) -> Ended {
    let session = t.session().await?;
    let (first, second) = (t.saying("The first answer.")?, t.saying("The second answer.")?);
    t.say(&session, &first.prompt()).await?;
    let mut body = t.asking(Some(&session), "");
    body["messages"] = json!([
        { "role": "user", "content": first.prompt() },
        { "role": "assistant", "content": first.text() },
        { "role": "user", "content": second.prompt() },
    ]);
    t.post(COMPLETIONS, As::Session(&session), body).await?.is(&[200])?;
    let asked = second.asked(1).await?;
    let once = asked.count(&first.mark()) == 1 && asked.count(&first.text()) == 1;
    t.holds(once, "the whole history again", "each message once", &asked.body.to_string())
}
