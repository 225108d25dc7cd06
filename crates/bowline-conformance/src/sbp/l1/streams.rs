//! Answers as Server-Sent Events.

use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};

use crate::check::{Check, Need, run, should};
use crate::model::Act;
use crate::trial::{Answer, As, COMPLETIONS, GIVEN_UP, Session, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    should(
        "SBP-L1-10",
        "a stream has OpenAI's shape, and its last chunk carries `sbp`",
        "stream: true: Server-Sent Events in OpenAI's chunk shape, ended by data: [DONE]; the last \
         data chunk before [DONE] carries sbp",
        run!(streams),
    ),
    should(
        "SBP-L1-10b",
        "a turn is kept whole although its reader goes away",
        "the turn is persisted whole even if the HTTP client goes away",
        run!(reader_leaves),
    )
    .needing(&[Need::Model]),
];

/// The data of all events.
pub(super) fn events(answer: &Answer) -> Vec<&str> {
    answer.text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect()
}

/// A turn that was asked for as a stream. Streaming is optional: an answer that is none says so.
async fn streamed(t: &Trial, session: &Session) -> Result<Answer, Stop> {
    let mut body = t.asking(Some(session), "Hello.");
    body["stream"] = json!(true);
    let answer = t.post(COMPLETIONS, As::Session(session), body).await?;
    let kind = answer.headers.get("content-type").and_then(|kind| kind.to_str().ok());
    let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
    match answer.status {
        200 if is_stream => Ok(answer),
        200 | 400 | 422 | 501 => Err(answer.body.not_offered("Content-Type: text/event-stream")),
        _ => Err(answer.body.wrong("status 200, and Content-Type: text/event-stream")),
    }
}

async fn streams(t: &Trial) -> Ended {
    let session = t.session().await?;
    let answer = streamed(t, &session).await?;
    let events = events(&answer);
    let Some(("[DONE]", chunks)) = events.split_last().map(|(last, chunks)| (*last, chunks)) else {
        return Err(answer.body.wrong("`data: [DONE]` as the last event"));
    };
    let chunks: Vec<Value> =
        chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap_or_default()).collect();
    let shaped = chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk");
    answer.body.holds(shaped, "every event a `chat.completion.chunk`")?;
    let said = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    answer.body.holds(said.map(str::len).sum::<usize>() > 0, "text in the chunks' deltas")?;
    let last = chunks.last().and_then(|chunk| chunk.pointer("/sbp/session_id"));
    answer.body.holds(
        last == Some(&json!(session.id)),
        "`sbp` with the session in the last chunk before [DONE]",
    )
}

async fn reader_leaves(t: &Trial) -> Ended {
    // A server that does not stream would wait for the whole answer, which is held back.
    streamed(t, &t.session().await?).await?;
    let session = t.session().await?;
    let script = t.script(vec![
        Act::say("Said before the reader left, "),
        Act::Hold,
        Act::say("and after."),
    ])?;
    let mut body = t.asking(Some(&session), &script.prompt());
    body["stream"] = json!(true);
    let sent = t.wire.sent(&format!("POST {COMPLETIONS}"), Some(&body));
    let request = t.wire.request(Method::POST, COMPLETIONS, As::Session(&session)).json(&body);
    let lost = |_| Stop::broken(&sent, "a stream", "no answer");
    let mut stream = t.wire.response(request).await.map_err(lost)?.bytes_stream();
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("before the reader left") {
        let piece = stream.next().await.and_then(Result::ok);
        let came = || String::from_utf8_lossy(&read).into_owned();
        let piece = piece.ok_or_else(|| {
            Stop::broken(&sent, "the text as the model says it", t.wire.clean(&came()))
        })?;
        read.extend_from_slice(&piece);
    }
    drop(stream);
    // A model that went on at once would be done before the server sees that its reader has gone, and a server
    // that gives turns up with their readers would pass.
    script.hung_up_within(GIVEN_UP).await;
    script.open();
    t.until(&session, "step_count = 1", |seen| seen["step_count"] == 1).await?;
    let next = t.saying("Next.")?;
    t.say(&session, &next.prompt()).await?;
    let asked = next.asked(1).await?;
    let whole = asked.count(&script.text()) == 1;
    t.holds(whole, &sent, "the whole answer in the stored history", &asked.body.to_string())
}
