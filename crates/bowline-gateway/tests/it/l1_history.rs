//! SBP L1: the history that the model is sent, and that each message is stored once.

use serde_json::{Value, json};

use crate::bench::{Bench, Session, asked, spoken, user};
use crate::upstream::{MockUpstream, Piece};

fn assistant(text: &str) -> Value {
    json!({ "role": "assistant", "content": text })
}

async fn send(bench: &Bench, session: &Session, messages: Value) -> u64 {
    let body = json!({ "model": "m", "messages": messages, "sbp": { "session_id": session.id } });
    let said = bench.chat(body).await;
    assert_eq!(said.status, 200, "{}", said.text);
    said.body["sbp"]["seq"].as_u64().unwrap()
}

#[tokio::test]
async fn sbp_l1_11_new_messages_get_the_history_prepended() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let system = json!({ "role": "system", "content": "be brief" });
    send(&bench, &session, json!([system, user("one")])).await;
    send(&bench, &session, json!([user("two")])).await;
    send(&bench, &session, json!([user("three"), user("four")])).await;
    let expected = [
        "system: be brief",
        "user: one",
        "assistant: answer 1",
        "user: two",
        "assistant: answer 2",
        "user: three",
        "user: four",
    ];
    assert_eq!(upstream.calls()[2].said(), expected);
    assert_eq!(bench.log(&session).await.len(), 8);
}

#[tokio::test]
async fn sbp_l1_11_a_resent_history_is_stored_and_sent_once() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let mut history = vec![user("one")];
    for n in 1..=4 {
        assert_eq!(send(&bench, &session, json!(history)).await, 2 * n);
        // As an SDK resends it: other spelling, other order, fields that say nothing.
        history.push(json!({
            "refusal": null, "content": format!("answer {n}"), "annotations": [], "role": "assistant",
        }));
        history.push(
            json!({ "role": "user", "content": [{ "type": "text", "text": format!("more {n}") }] }),
        );
    }
    let roles: Vec<_> = bench.log(&session).await.into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant"].repeat(4));
    let last = &upstream.calls()[3];
    assert_eq!(last.body["messages"].as_array().unwrap().len(), 7);
    let answers: Vec<_> =
        last.said().into_iter().filter(|said| said.starts_with("assistant")).collect();
    assert_eq!(answers, ["assistant: answer 1", "assistant: answer 2", "assistant: answer 3"]);
}

#[tokio::test]
async fn sbp_l1_11_the_same_words_again_are_new_words() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    send(&bench, &session, json!([user("hi")])).await;
    send(&bench, &session, json!([user("hi")])).await;
    assert_eq!(upstream.calls()[1].said(), ["user: hi", "assistant: answer 1", "user: hi"]);
    // Pairs that are not this session's are examples: sent, not stored.
    send(&bench, &session, json!([user("elsewhere"), assistant("there"), user("x")])).await;
    assert_eq!(bench.log(&session).await.len(), 6);
    let told = upstream.calls()[2].said();
    assert_eq!(told[..2], ["user: elsewhere", "assistant: there"]);
    assert_eq!((told.len(), told[6].as_str()), (7, "user: x"));
}

#[tokio::test]
async fn sbp_l1_11_messages_go_back_to_the_model_as_they_were_written() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let odd = r#"{"role":"user",  "content":"\u00e9", "weight":1.50e+1}"#;
    let text = format!(r#"{{"model":"m","messages":[{odd}],"sbp":{{}}}}"#);
    let session = Session::of(&bench.chat_text(&text).await.body["sbp"]);
    bench.say(&session, "more").await;
    assert!(upstream.calls()[1].text.contains(odd), "{}", upstream.calls()[1].text);
    assert!(bench.get(&format!("/v1/sessions/{}/messages", session.id)).await.text.contains(odd));
}

#[tokio::test]
async fn sbp_l1_11_a_long_conversation_is_told_whole_whatever_went_wrong_in_it() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    for n in 0..24 {
        // Every turn is told exactly what the log holds, and the new words.
        let mut told: Vec<_> = bench
            .log(&session)
            .await
            .iter()
            .map(|(role, text)| format!("{role}: {text}"))
            .collect();
        told.push(format!("user: words {n}"));
        let (model, status) = match n {
            11 | 17 => ("status-400", 400),
            13 | 19 => {
                let gate = upstream.gate();
                gate.send(Piece::Text("broken off".into())).unwrap();
                gate.send(Piece::Cut).unwrap();
                ("gated", 502)
            }
            _ => ("m", 200),
        };
        let said = bench.say_to(&session, model, &format!("words {n}")).await;
        assert_eq!(said.status, status, "{}", said.text);
        assert_eq!(upstream.calls().pop().unwrap().said(), told, "turn {n}");
    }
    assert_eq!(bench.log(&session).await.len(), 2 * 22, "all but the two that were refused");
}

/// The tool round trip, with and without streaming, with and without resent history.
async fn tool_round_trip(stream: bool, resends: bool) {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let tools = json!([{ "type": "function", "function": { "name": "look_up", "strict": true } }]);
    let mut ask = asked("tools", "what is it?", json!({}));
    ask["tools"] = tools.clone();
    ask["stream"] = json!(stream);
    let said = bench.chat(ask.clone()).await;
    assert_eq!(said.status, 200, "{}", said.text);

    let (sbp, calls) = if stream {
        let chunks = said.chunks();
        let deltas = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0]);
        let arguments: String =
            deltas.filter_map(|call| call["function"]["arguments"].as_str()).collect();
        assert_eq!(arguments, r#"{"q":1}"#);
        let last = chunks.last().unwrap();
        assert_eq!(last["choices"][0]["finish_reason"], "tool_calls");
        (last["sbp"].clone(), Value::Null)
    } else {
        assert_eq!(said.body["choices"][0]["finish_reason"], "tool_calls");
        (said.body["sbp"].clone(), said.body["choices"][0]["message"]["tool_calls"].clone())
    };
    let session = Session::of(&sbp);
    let stored = bench.entries(&session).await;
    let asks = &stored[1]["message"];
    assert_eq!((&stored[1]["kind"], &stored[1]["status"]), (&json!("turn"), &json!("complete")));
    assert_eq!(asks["tool_calls"][0]["id"], "call_1");
    assert_eq!(asks["tool_calls"][0]["function"]["arguments"], r#"{"q":1}"#);
    assert!(stream || asks["tool_calls"] == calls);

    let result = json!({ "role": "tool", "tool_call_id": "call_1", "content": "forty-two" });
    let mut messages = vec![result.clone()];
    if resends {
        messages = vec![user("what is it?"), asks.clone(), result];
    }
    let mut ask =
        json!({ "model": "tools", "tools": tools, "stream": stream, "messages": messages });
    ask["sbp"] = json!({ "session_id": session.id });
    let said = bench.chat(ask).await;
    let words = if stream { spoken(&said.chunks()) } else { said.content().to_owned() };
    assert_eq!(words, "it says forty-two");

    let log = bench.log(&session).await;
    let roles: Vec<_> = log.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    let call = upstream.calls().pop().unwrap();
    assert_eq!(call.said(), ["user: what is it?", "assistant: ", "tool: forty-two"]);
    assert_eq!(call.body["messages"][1]["tool_calls"], asks["tool_calls"]);
    assert_eq!(call.body["messages"][2]["tool_call_id"], "call_1");
    assert_eq!(call.body["tools"], tools);
}

#[tokio::test]
async fn sbp_l1_12_tools_that_the_caller_runs_are_stored_and_resent() {
    tool_round_trip(false, false).await;
    tool_round_trip(false, true).await;
}

#[tokio::test]
async fn sbp_l1_12_tools_work_in_a_stream() {
    tool_round_trip(true, false).await;
    tool_round_trip(true, true).await;
}
