//! What goes to the model, and what does not.

use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde_json::json;

use crate::check::{Check, Need, must, run, should};
use crate::model::Act;
use crate::trial::{As, COMPLETIONS, SESSION_TOKEN, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L1-06b",
        "`sbp` is never forwarded",
        "sbp is never forwarded upstream",
        run!(never_forwarded),
    )
    .needing(&[Need::Model]),
    must(
        "SBP-L1-08",
        "the model's name and the caller's fields pass through as they came",
        "model passes through verbatim; a session has no model affinity",
        run!(verbatim),
    )
    .needing(&[Need::Model]),
    must(
        "SBP-L1-09",
        "without `sbp` and token a call passes through byte for byte",
        "No sbp object and no X-Session-Token: plain OpenAI pass-through, byte-for-byte body, \
         nothing stored",
        run!(passes_through),
    )
    .needing(&[Need::Model]),
    should(
        "SBP-L1-12",
        "tools that the caller runs reach the model, and its calls the caller",
        "Optional parts that users expect: streaming, tools, memory",
        run!(callers_tools),
    )
    .needing(&[Need::Model]),
];

async fn never_forwarded(t: &Trial) -> Ended {
    let session = t.session().await?;
    let script = t.saying("Yes.")?;
    let mut body = t.asking(Some(&session), &script.prompt());
    body["sbp"]["checkpoint_every"] = json!(1);
    t.post(COMPLETIONS, As::Session(&session), body).await?.is(&[200])?;
    let asked = script.asked(1).await?;
    let without = asked.body.get("sbp").is_none();
    t.holds(without, "a turn with `sbp`", "upstream: no field `sbp`", &asked.body.to_string())
}

async fn verbatim(t: &Trial) -> Ended {
    let session = t.session().await?;
    for model in ["conformance/Model-A:1", "conformance-b"] {
        let script = t.saying("Yes.")?;
        let mut body = t.asking(Some(&session), &script.prompt());
        body["model"] = json!(model);
        body["temperature"] = json!(0.25);
        body["user"] = json!("someone");
        t.post(COMPLETIONS, As::Session(&session), body).await?.is(&[200])?;
        let asked = script.asked(1).await?.body;
        let same = asked["model"] == model
            && asked["temperature"] == json!(0.25)
            && asked["user"] == "someone";
        let sent = format!("a turn with model {model:?}, temperature 0.25, user \"someone\"");
        t.holds(same, &sent, "upstream: the same three fields", &asked.to_string())?;
    }
    Ok(())
}

async fn passes_through(t: &Trial) -> Ended {
    let script = t.saying("Passed through.")?;
    // Spaces, order and the form of the number would not survive parsing and writing.
    let body = format!(
        "{{ \"messages\" : [ {{\"content\":\"{}\", \"role\": \"user\"}} ],\n  \"temperature\": 1.50, \
         \"model\":\"conformance\" }}",
        script.prompt()
    );
    let request = t.wire.request(Method::POST, COMPLETIONS, As::Caller);
    let request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
    let sent = t.wire.sent(&format!("POST {COMPLETIONS} {body}"), None);
    let answer = t.wire.exchange(request, sent.clone()).await?.is(&[200])?;
    let fields = ["sbp", "session_id", "session_token"];
    let named =
        fields.iter().any(|name| answer.body.json.get(*name).is_some_and(|is| !is.is_null()));
    if named || answer.headers.contains_key(SESSION_TOKEN) {
        // The protocol's documents say both; a server has to choose.
        let why = "the server keeps a session for every call, which is allowed, too";
        return Err(Stop::unable(why));
    }
    answer.body.is(&["/choices/0/message/content"], script.text())?;
    let asked = script.asked(1).await?;
    let came = String::from_utf8_lossy(&asked.raw).into_owned();
    t.holds(asked.raw == body.as_bytes(), &sent, "upstream: the same bytes", &came)
}

async fn callers_tools(t: &Trial) -> Ended {
    let session = t.session().await?;
    let script = t.rounds(vec![
        vec![Act::call("look_up", json!({ "word": "sea" }))],
        vec![Act::say("The sea is wide.")],
    ])?;
    let tool = json!({ "type": "function", "function": {
        "name": "look_up", "parameters": { "type": "object", "properties": {} } } });
    let mut body = t.asking(Some(&session), &script.prompt());
    body["tools"] = json!([tool]);
    let called = t.post(COMPLETIONS, As::Session(&session), body.clone()).await?.is(&[200])?.body;
    let tools = script.asked(1).await?.tools();
    let offered = tools.iter().any(|name| name == "look_up");
    t.holds(offered, &called.sent, "upstream: the tool `look_up`", &format!("{tools:?}"))?;
    called.is(&["/choices/0/message/tool_calls/0/function/name"], "look_up")?;
    called.is(&["/choices/0/finish_reason"], "tool_calls")?;
    let id = called.text(&["/choices/0/message/tool_calls/0/id"])?;
    body["messages"] = json!([{ "role": "tool", "tool_call_id": id, "content": "wide" }]);
    let answer = t.post(COMPLETIONS, As::Session(&session), body).await?.is(&[200])?.body;
    answer.is(&["/choices/0/message/content"], script.text())
}
