//! SBP L1: a completion runs a turn, stores it, and reports the session's state.

use bowline_gateway::config::SessionMode;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, Session, answer, asked, plain, turn, user};
use crate::upstream::{MockUpstream, ODD, ODD_STREAM};

const COMPLETIONS: &str = "/v1/completions";

#[tokio::test]
async fn sbp_l1_02_a_completion_keeps_what_was_asked_and_answered() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let said = bench.chat(asked("m", "hello", json!({}))).await;
    assert_eq!((said.status, said.content()), (200, "answer 1"));
    assert_eq!(said.body["object"], "chat.completion");
    assert_eq!(said.body["unknown_extra"], json!({ "kept": true }), "the upstream's own fields");
    assert_eq!(said.body["usage"]["total_tokens"], 1100);
    let session = Session::of(&said.body["sbp"]);
    let log = [("user".into(), "hello".into()), ("assistant".into(), "answer 1".into())];
    assert_eq!(bench.log(&session).await, log);
}

#[tokio::test]
async fn sbp_l1_02_the_older_name_takes_messages_and_a_prompt() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let said = bench.post(COMPLETIONS, turn(&session, "m", "one")).await;
    assert_eq!((said.status, said.content()), (200, "answer 1"));
    assert_eq!(said.body["choices"][0]["text"], Value::Null);

    let prompt = json!({ "model": "m", "prompt": "two", "sbp": { "session_id": session.id } });
    let said = bench.post(COMPLETIONS, prompt).await;
    assert_eq!((said.status, &said.body["object"]), (200, &json!("text_completion")));
    assert_eq!(said.body["choices"][0]["text"], "answer 2");
    assert_eq!(said.body["sbp"]["step_count"], 2);
    let texts: Vec<_> = bench.log(&session).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["one", "answer 1", "two", "answer 2"]);
    let call = &upstream.calls()[1];
    assert_eq!(call.said(), ["user: one", "assistant: answer 1", "user: two"]);
    assert!(!call.text.contains("prompt"), "{}", call.text);

    let prompt = json!({ "model": "m", "prompt": "three", "stream": true,
                         "sbp": { "session_id": session.id } });
    let chunks = bench.post(COMPLETIONS, prompt).await.chunks();
    let text: String = chunks.iter().map(|c| c["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, "answer 3");
    assert!(chunks.iter().all(|chunk| chunk["object"] == "text_completion"), "{chunks:?}");
    assert_eq!(chunks.last().unwrap()["sbp"]["step_count"], 3);

    let list = json!({ "model": "m", "prompt": ["a"], "sbp": {} });
    let refused = bench.post(COMPLETIONS, list).await;
    assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"));
    assert_eq!(refused.body["error"]["param"], "prompt");
}

#[tokio::test]
async fn sbp_l1_05_the_agent_is_the_headers_else_the_sessions_else_the_default() {
    let bench = Bench::start().await;
    let agent_of = async |session: &Session| bench.show(session).await["agent_id"].clone();
    let named = bench.chat_as(&[("X-Agent-ID", "planner")], asked("m", "echo", json!({}))).await;
    let named = Session::of(&named.body["sbp"]);
    assert_eq!(agent_of(&named).await, "planner");
    let nobody = bench.chat(asked("m", "echo", json!({}))).await;
    assert_eq!(agent_of(&Session::of(&nobody.body["sbp"])).await, "default");

    bench.say(&named, "echo without a header").await;
    assert_eq!(agent_of(&named).await, "planner", "stable across calls");
    // A header on a session that has an agent speaks for that one turn.
    bench.chat_as(&[("X-Agent-ID", "critic")], turn(&named, "m", "echo as another")).await;
    bench.chat_as(&[("X-Agent-ID", "planner")], turn(&named, "m", "echo as oneself")).await;
    assert_eq!(agent_of(&named).await, "planner");
    let took: Vec<_> = bench.entries(&named).await;
    let took: Vec<_> = took.iter().filter(|entry| entry["kind"] == "turn").collect();
    assert_eq!(took[2]["agent_id"], "critic");
    assert!(took[1]["agent_id"].is_null() && took[3]["agent_id"].is_null());
    // A fresh start from a session keeps its agent, unless another is named.
    let token = ("X-Session-Token", named.token.as_str());
    let afresh = || asked("m", "echo", json!({ "force_new_session": true }));
    for (headers, agent) in
        [(&[token][..], "planner"), (&[token, ("X-Agent-ID", "critic")], "critic")]
    {
        let said = bench.chat_as(headers, afresh()).await;
        assert_eq!(agent_of(&Session::of(&said.body["sbp"])).await, agent);
    }
    // Sessions that are made without a turn read the same header; the body is more particular.
    let made = async |body: Value| {
        let headers = [("X-Agent-ID", "planner")];
        bench.call(Method::POST, "/v1/sessions", &headers, &body).await.body["agent_id"].clone()
    };
    assert_eq!(made(json!({})).await, "planner");
    assert_eq!(made(json!({ "agent_id": "writer" })).await, "writer");
    let bad = bench.chat_as(&[("X-Agent-ID", "")], asked("m", "echo", json!({}))).await;
    assert_eq!(bad.refusal(), (422, "SBP_INVALID_REQUEST"));
    assert_eq!(bad.body["error"]["param"], "X-Agent-ID");
}

#[tokio::test]
async fn sbp_l1_06_options_are_obeyed_and_unknown_ones_ignored() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let token = [("X-Session-Token", session.token.as_str())];
    let here = bench.chat_as(&token, asked("m", "echo x", json!({ "future": { "x": 1 } }))).await;
    assert_eq!(here.body["sbp"]["session_id"], session.id);
    for same in [json!({ "memory_retrieval": true }), json!({ "memory_retrieval": false })] {
        let said = bench.chat_as(&token, asked("m", "echo x", same)).await;
        assert_eq!((said.status, &said.body["sbp"]["session_id"]), (200, &json!(session.id)));
    }
    let forced = bench.chat_as(&token, asked("m", "echo x", json!({ "force_new_session": true })));
    assert_ne!(forced.await.body["sbp"]["session_id"], json!(session.id));
    let named = bench.chat(asked("m", "echo x", json!({ "session_id": session.id }))).await;
    assert_eq!(named.body["sbp"]["step_count"], 4, "explicit resume goes on with that session");
}

#[tokio::test]
async fn sbp_l1_06_bad_options_are_refused_and_nothing_is_stored() {
    let bench = Bench::start().await;
    let unknown = "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";
    for (sbp, status, code, param) in [
        (json!({ "checkpoint_every": 0 }), 422, "SBP_INVALID_REQUEST", json!("sbp")),
        (json!({ "checkpoint_every": -1 }), 422, "SBP_INVALID_REQUEST", json!("sbp")),
        (json!({ "checkpoint_every": 1.5 }), 422, "SBP_INVALID_REQUEST", json!("sbp")),
        (json!({ "force_new_session": "yes" }), 422, "SBP_INVALID_REQUEST", json!("sbp")),
        (json!({ "memory_retrieval": 1 }), 422, "SBP_INVALID_REQUEST", json!("sbp")),
        (json!({ "session_id": 5 }), 422, "SBP_INVALID_REQUEST", json!("sbp")),
        (json!("on"), 422, "SBP_INVALID_REQUEST", json!("sbp")),
        (json!(true), 422, "SBP_INVALID_REQUEST", json!("sbp")),
        (json!([true]), 422, "SBP_INVALID_REQUEST", json!("sbp")),
        (json!({ "session_id": "five" }), 422, "SBP_INVALID_UUID", json!("session_id")),
        (json!({ "session_id": unknown }), 404, "SBP_SESSION_NOT_FOUND", Value::Null),
    ] {
        let refused = bench.chat(asked("m", "echo x", sbp.clone())).await;
        assert_eq!(refused.refusal(), (status, code), "{sbp}");
        assert_eq!(refused.body["error"]["param"], param, "{sbp}");
        assert_eq!(refused.body["error"]["type"], "invalid_request_error", "{sbp}");
    }
    assert_eq!(bench.sessions().await, [] as [Value; 0]);
}

#[tokio::test]
async fn sbp_l1_06_sbp_is_never_forwarded_and_all_else_is_as_it_came() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    for stream in ["false", "true"] {
        let text = format!(
            r#"{{"sbp":{{"canary":"sbp-goes-nowhere"}}, "model":"m","temperature":1.50,
            "seed":12345678901234567890123,"metadata":{{ "a" :[1E2] }},"stream":{stream},
            "messages":[{{"role":"user", "content":"\u00e9", "x":1.50e+2}}]}}"#
        );
        assert_eq!(bench.chat_text(&text).await.status, 200);
    }
    for call in upstream.calls() {
        assert!(!call.text.contains("sbp"), "{}", call.text);
        for kept in [
            r#""temperature":1.50,"#,
            r#""seed":12345678901234567890123,"#,
            r#""metadata":{ "a" :[1E2] },"#,
            r#"{"role":"user", "content":"\u00e9", "x":1.50e+2}"#,
        ] {
            assert!(call.text.contains(kept), "{kept} is not in {}", call.text);
        }
        assert!(call.headers.get("x-session-token").is_none());
    }
}

#[tokio::test]
async fn sbp_l1_07_the_answer_says_where_the_session_stands() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let first = bench.chat(asked("m", "one", json!({}))).await;
    let session = Session::of(&first.body["sbp"]);
    let token = [("X-Session-Token", session.token.as_str())];
    let second = bench.chat_as(&token, plain("m", "two")).await;
    for (said, steps) in [(&first, 1), (&second, 2)] {
        let sbp = &said.body["sbp"];
        assert_eq!(sbp["session_id"], session.id);
        assert!(sbp["snapshot_id"].as_str().unwrap().parse::<uuid::Uuid>().is_ok());
        assert_eq!(
            (&sbp["resume_available"], &sbp["resume_prompt"]),
            (&json!(false), &Value::Null)
        );
        assert!(sbp.as_object().unwrap().contains_key("resume_prompt"), "there, and null");
        assert!(sbp["last_checkpoint"].as_str().unwrap().parse::<Timestamp>().is_ok());
        assert_eq!((&sbp["step_count"], &sbp["cost_usd"]), (&json!(steps), &json!(0.0)));
        assert_eq!(sbp["model_routed_to"], "mock");
        assert_eq!(said.header("x-session-token"), session.token);
    }
    assert!(session.token.len() >= 32);
    assert!(second.body["sbp"].as_object().unwrap().get("session_token").is_none());
    assert_ne!(first.body["sbp"]["snapshot_id"], second.body["sbp"]["snapshot_id"]);
}

#[tokio::test]
async fn sbp_l1_08_models_change_freely_and_every_turn_records_its_own() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let models = ["gpt-4o", "Org/Odd Model:v1.0", "café", "bowline/offline"];
    for model in models {
        let said = bench.say_to(&session, model, "hi").await;
        assert_eq!((said.status, &said.body["model"]), (200, &json!(model)));
        let routed = if model == "bowline/offline" { "offline" } else { "mock" };
        assert_eq!(said.body["sbp"]["model_routed_to"], routed);
    }
    // Verbatim is the spelling, too.
    let text = format!(
        r#"{{"model":"gpt\u002d4o","messages":[{{"role":"user","content":"x"}}],"sbp":{{"session_id":"{}"}}}}"#,
        session.id
    );
    assert_eq!(bench.chat_text(&text).await.status, 200);
    let sent: Vec<_> = upstream.calls().iter().map(|call| call.body["model"].clone()).collect();
    assert_eq!(sent, ["gpt-4o", "Org/Odd Model:v1.0", "café", "gpt-4o"]);
    assert!(upstream.calls()[3].text.contains(r#""model":"gpt\u002d4o""#));

    let entries = bench.entries(&session).await;
    let used: Vec<_> =
        entries.iter().filter(|e| e["kind"] == "turn").map(|e| e["model_used"].clone()).collect();
    assert_eq!(used, [models[0], models[1], models[2], models[3], "gpt-4o"]);
}

#[tokio::test]
async fn sbp_l1_09_without_sbp_a_call_passes_through_byte_for_byte() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let messages = r#""messages":[ {"content":"\u00e9\/","role":"user","n":1.50E+02} ] "#;
    for (stream, path) in [
        ("false", "/v1/chat/completions"),
        ("true", "/v1/chat/completions"),
        ("false", COMPLETIONS),
    ] {
        let text = format!(
            "\r\n {{ \"model\" :\"odd\",\t{messages},\"stream\": {stream},\"a\":1,\"a\":1.0 }}\n"
        );
        let request = bench.http.post(bench.url(path)).body(text.clone());
        let said = answer(request.header("authorization", "Bearer sk-of-the-caller")).await;
        assert_eq!(said.status, 200);
        let (expected, kind) = match stream {
            "true" => (ODD_STREAM, "text/event-stream"),
            _ => (ODD, "application/json; charset=odd"),
        };
        assert_eq!((said.text.as_str(), said.header("content-type")), (expected, kind));
        assert_eq!(said.header("x-session-token"), "");
        assert_eq!(upstream.calls().last().unwrap().text, text);
    }
    let nothing = bench.chat_text(r#"{"model":"m","messages":[],"sbp":null,"n":1.0}"#).await;
    let sent = upstream.calls().pop().unwrap().text;
    assert_eq!((nothing.status, sent.as_str()), (200, r#"{"model":"m","messages":[],"n":1.0}"#));
    let refused = bench.chat(plain("status-418", "x")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (418, "7"));
    assert_eq!(refused.body["error"]["message"], "scripted refusal of status-418", "errors, too");
    assert_eq!(bench.sessions().await, [] as [Value; 0], "nothing was stored");
}

#[tokio::test]
async fn sbp_l1_09_the_built_in_agent_answers_in_the_same_shapes() {
    let bench = Bench::start().await;
    let whole = bench.chat(plain("m", "echo a b")).await;
    assert_eq!((whole.status, whole.content()), (200, "a b"));
    let mut body = plain("m", "echo a b");
    body["stream"] = json!(true);
    let streamed = bench.chat(body).await;
    assert_eq!(crate::bench::spoken(&streamed.chunks()), "a b");
    for said in [&whole.text, &streamed.text] {
        assert!(!said.contains("sbp") && !said.contains("session"), "{said}");
    }
    assert_eq!(bench.sessions().await, [] as [Value; 0]);
}

#[tokio::test]
async fn sbp_l1_09_mode_always_tracks_every_call() {
    let bench = Bench::with(|config| config.sessions.mode = SessionMode::Always).await;
    let said = bench.chat(plain("m", "echo x")).await;
    assert_eq!(said.status, 200);
    let session = Session::of(&said.body["sbp"]);
    assert_eq!(said.header("x-session-token"), session.token);
    assert_eq!(bench.log(&session).await.len(), 2);
    let other = bench.chat(plain("m", "echo x")).await;
    assert_ne!(other.body["sbp"]["session_id"], json!(session.id), "no token, no same session");
}

#[tokio::test]
async fn a_request_that_is_no_completion_is_refused_and_the_field_named() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.upstream.get_mut("mock").unwrap().models = vec!["m".into()];
    })
    .await;
    let said = || json!([user("x")]);
    for (mut body, param) in [
        (json!({ "messages": said() }), json!("model")),
        (json!({ "model": "", "messages": said() }), json!("model")),
        (json!({ "model": "m".repeat(257), "messages": said() }), json!("model")),
        (json!({ "model": "m" }), json!("messages")),
        (json!({ "model": "m", "messages": [] }), json!("messages")),
        (json!({ "model": "m", "messages": "x" }), json!("messages")),
        (json!({ "model": "m", "messages": [{ "content": "x" }] }), json!("messages")),
        (json!({ "model": "nobody-serves-it", "messages": said() }), Value::Null),
    ] {
        body["sbp"] = json!({});
        let refused = bench.chat(body.clone()).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"), "{body}");
        assert_eq!(refused.body["error"]["param"], param, "{body}");
    }
    assert_eq!((bench.sessions().await.len(), upstream.calls().len()), (0, 0));
}
