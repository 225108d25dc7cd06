//! Defects that the session actor was made to end, each as the requirement it broke.

use std::time::Duration;

use bowline_gateway::config::{Config, Price};
use bowline_store::Error;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use crate::bench::{
    Answer, Bench, DEADLINE, Session, answer, asked, eventually, hello, list, plain, some_of, turn,
};
use crate::disk::on_a_bad_disk_with;
use crate::l1_endings::{RawUpstream, closed};
use crate::l4_translate::ORIGINAL;
use crate::roaming::{forked, made, of};
use crate::upstream::{MockUpstream, Piece};

const KEY: &str = "an-api-key-of-this-test";

fn locked(config: &mut Config) {
    config.auth.api_keys = vec![KEY.into()];
}

fn bearer(text: &str) -> String {
    format!("Bearer {text}")
}

/// The same as [`Bench::call`] with the key of this test.
async fn by_key(bench: &Bench, method: Method, path: &str, body: Value) -> Answer {
    let key = bearer(KEY);
    bench.call(method, path, &[("Authorization", &key)], &body).await
}

async fn by_token(bench: &Bench, session: &Session, method: Method, path: &str) -> Answer {
    let body = if method == Method::GET { Value::Null } else { json!({ "to_agent_id": "cook" }) };
    bench.call(method, path, &[("X-Session-Token", &session.token)], &body).await
}

#[tokio::test]
async fn sbp_l5_02_arguments_are_kept_where_a_server_counts_calls_from_1() {
    let upstream = RawUpstream::start().await;
    let bench = upstream.bench().await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["a", "b"] })).await;
    let piece =
        |call: Value| json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] } }] });
    let begin = |index: u32, name: &str| {
        piece(json!({ "index": index, "id": format!("call_{name}"), "type": "function",
                      "function": { "name": format!("surface_{name}"), "arguments": "" } }))
    };
    let more = |index: u32, text: &str| {
        piece(json!({ "index": index, "function": { "arguments": text } }))
    };
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] });
    let events = [
        begin(1, "a"),
        begin(2, "b"),
        more(1, "{\"n\""),
        more(2, "{\"n\":2}"),
        more(1, ":1}"),
        end,
    ]
    .map(|event| event.to_string());
    let [a, b, c, d, e, f] = &events;
    upstream.answer("x", closed(&[a, b, c, d, e, f, "[DONE]"]));
    let device = async {
        let first = phone.until("TOOL_CALL").await.pop().unwrap();
        let second = phone.until("TOOL_CALL").await.pop().unwrap();
        let said = r#"{"choices":[{"index":0,"delta":{"content":"done"},"finish_reason":"stop"}]}"#;
        upstream.answer("x", closed(&[said, "[DONE]"]));
        let mut inputs = Vec::new();
        for call in [first, second] {
            inputs.push((call["tool_name"].clone(), call["tool_input"].clone()));
            phone
                .send(json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": "ok" }))
                .await;
        }
        inputs
    };
    let (said, inputs) = tokio::join!(bench.say_to(&session, "x", "go"), device);
    assert_eq!(said.content(), "done", "{}", said.text);
    let expected = [(json!("a"), json!({ "n": 1 })), (json!("b"), json!({ "n": 2 }))];
    assert_eq!(inputs, expected);
}

#[tokio::test]
async fn g12_a_client_that_pipelines_and_never_reads_is_let_go() {
    let bench = Bench::with(|config| {
        config.limits.connections = 1;
        config.limits.write_timeout = Duration::from_millis(300);
        config.limits.header_timeout = Duration::from_secs(3600);
    })
    .await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(bench.gateway.address()).await.unwrap();
    // Answers that are more than all buffers on the way take; it goes on asking until it is let go.
    let ask = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    let asking = async { while stream.write_all(ask.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(DEADLINE, asking).await.expect("it was never let go");
    // The one place there is free again.
    assert_eq!(bench.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn g11_no_body_is_read_before_the_credential_is_checked() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        locked(config);
        config.limits.body_timeout = Duration::from_secs(3600);
    })
    .await;
    let session = Session::of(&by_key(&bench, Method::POST, "/v1/sessions", json!({})).await.body);
    let wrong = format!("Authorization: {}", bearer("a-key-that-nobody-was-given"));
    let wrong_token = "X-Session-Token: sbt_a-token-that-opens-nothing-at-all".to_owned();
    let its = |what: &str| format!("/v1/sessions/{}/{what}", session.id);
    let chat = "/v1/chat/completions".to_owned();
    for (method, path, shown, status) in [
        ("POST", chat.clone(), "X-None: 1", 401),
        ("POST", chat.clone(), wrong.as_str(), 403),
        ("POST", chat, wrong_token.as_str(), 403),
        ("POST", "/v1/completions".into(), wrong.as_str(), 403),
        ("POST", "/v1/sessions".into(), wrong.as_str(), 403),
        ("POST", "/v1/sessions/import".into(), wrong.as_str(), 403),
        ("PUT", "/v1/agents/a/memory".into(), wrong.as_str(), 403),
        ("POST", "/v1/agents/a/memory".into(), wrong.as_str(), 403),
        ("PATCH", its("status"), wrong_token.as_str(), 403),
        ("POST", its("cancel"), wrong_token.as_str(), 403),
        ("POST", its("export"), wrong_token.as_str(), 403),
        ("POST", its("handoff"), wrong_token.as_str(), 403),
        ("POST", its("fork"), wrong_token.as_str(), 403),
        ("POST", its("surfaces"), wrong_token.as_str(), 403),
    ] {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             {shown}\r\nContent-Length: 100000\r\n\r\n"
        );
        let mut socket = bench.raw(&head).await;
        let answer = some_of(&mut socket).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {answer}");
    }
    assert!(upstream.calls().is_empty());
}

#[tokio::test]
async fn sbp_l1_01_a_callers_own_token_as_bearer_is_its_session() {
    let own = "the-callers-own-token-32-letters-";
    for lock in [false, true] {
        let bench = Bench::with(|config| {
            if lock {
                locked(config)
            }
        })
        .await;
        let new = json!({ "session_token": own });
        let session = by_key(&bench, Method::POST, "/v1/sessions", new).await;
        assert_eq!(session.status, 201, "{}", session.text);
        let id = &session.body["session_id"];
        let shown = bearer(own);
        let shown = [("Authorization", shown.as_str())];
        for body in [
            plain("m", "echo hi"),
            asked("m", "echo hi", json!({})),
            asked("m", "echo hi", json!({ "session_id": id })),
        ] {
            let said = bench.chat_as(&shown, body).await;
            assert_eq!((said.status, said.content()), (200, "hi"), "{}", said.text);
            assert_eq!(&said.body["sbp"]["session_id"], id);
        }
        let log = bench
            .call(
                Method::GET,
                &format!("/v1/sessions/{}/messages", id.as_str().unwrap()),
                &shown,
                &Value::Null,
            )
            .await;
        assert_eq!(list(&log.body["messages"]).len(), 6, "{}", log.text);
    }
}

#[tokio::test]
async fn sbp_l2_10_a_detach_that_could_not_be_written_is_written_later() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk_with(&upstream, |_| {}).await;
    let session = bench.session().await;
    bench.say(&session, "hi").await;
    let (phone, _) = bench.attach(&session).await;
    disk.fail("detach", Error::Unavailable("a test says so".into()));
    drop(phone);
    bench.until_status(&session, "suspended").await;
    assert!(disk.has_failed());
    bench.until(&session, "let go", |seen| seen["surface"].is_null()).await;
}

#[tokio::test]
async fn g8_a_second_handoff_is_refused_at_once_while_one_waits_and_packs_nothing() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk_with(&upstream, |_| {}).await;
    let session = bench.session().await;
    bench.say(&session, "hi").await;
    let gate = upstream.gate();
    let running = tokio::spawn({
        let request = bench.http.post(bench.url("/v1/chat/completions"));
        request.json(&turn(&session, "gated", "go")).send()
    });
    upstream.until_calls(2).await;
    let hand_off = |agent: &str| {
        let request = bench.http.post(bench.url(&of(&session, "handoff")));
        let request = request.header("Idempotency-Key", format!("to {agent}"));
        tokio::spawn(answer(request.json(&json!({ "to_agent_id": agent }))))
    };
    let (mut cook, mut waiter) = (hand_off("cook"), hand_off("waiter"));
    // Whichever came second is refused, while the turn still runs.
    let (refused, waits, agent) = tokio::select! {
        refused = &mut cook => (refused.unwrap(), waiter, "waiter"),
        refused = &mut waiter => (refused.unwrap(), cook, "cook"),
    };
    assert_eq!(refused.refusal(), (409, "SBP_SESSION_CONFLICT"), "{}", refused.text);
    assert_eq!(disk.ended("pack"), 0);
    assert!(!waits.is_finished());
    let again = hand_off(agent);
    drop(gate);
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
    let (waited, again) = (waits.await.unwrap(), again.await.unwrap());
    assert_eq!(made(&waited).id, made(&again).id, "the same request is the same handoff");
    assert_eq!(waited.body["to_agent_id"], agent);
    assert_eq!(disk.ended("pack"), 1);
    assert_eq!(list(&bench.lineage(&session).await["outgoing_handoffs"]).len(), 1);
}

#[tokio::test]
async fn g3_keys_are_forgotten_when_they_are_old() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let key = [("Idempotency-Key", "the-same")];
    assert_eq!(bench.chat_as(&key, turn(&session, "m", "one")).await.status, 200);
    let other = bench.chat_as(&key, turn(&session, "m", "two")).await;
    assert_eq!(other.refusal().0, 409, "{}", other.text);
    let bench = bench
        .reopened_with(|config| {
            upstream.configure(config);
            config.limits.key_memory = Duration::ZERO;
        })
        .await;
    // It forgets soon after it has started.
    eventually("forgotten", async || {
        bench.chat_as(&key, turn(&session, "m", "two")).await.status == 200
    })
    .await;
}

#[tokio::test]
async fn sbp_l3_10_the_next_agent_is_told_what_the_former_remembered() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, locked).await;
    let remember = async |agent: &str, text: &str| {
        let body = json!({ "memories": [{ "text": text }] });
        let put = by_key(&bench, Method::PUT, &format!("/v1/agents/{agent}/memory"), body).await;
        assert_eq!(put.status, 200, "{}", put.text);
    };
    remember("default", "Anna drinks tea.").await;
    remember("cook", "The oven is slow.").await;
    let session = async || {
        let made = by_key(&bench, Method::POST, "/v1/sessions", json!({})).await;
        let session = Session::of(&made.body);
        let said = by_key(&bench, Method::POST, "/v1/chat/completions", turn(&session, "m", "hi"));
        assert_eq!(said.await.status, 200);
        session
    };
    let (first, second) = (session().await, session().await);
    let to = json!({ "to_agent_id": "cook" });
    let new = made(&by_key(&bench, Method::POST, &of(&first, "handoff"), to).await);
    let ask = turn(&new, "m", "what is there?");
    by_key(&bench, Method::POST, "/v1/chat/completions", ask).await;
    let call = upstream.calls().pop().unwrap();
    assert!(call.text.contains("Anna drinks tea."), "{:?}", call.said());
    // It was told, and has not become its own.
    let own = by_key(&bench, Method::GET, "/v1/agents/cook/memory", Value::Null).await;
    let own: Vec<_> = list(&own.body["memories"]).iter().map(|m| m["text"].clone()).collect();
    assert_eq!(own, ["The oven is slow."]);
    // A session's token does not open what its agent remembers elsewhere.
    let new = made(&by_token(&bench, &second, Method::POST, &of(&second, "handoff")).await);
    let log =
        by_token(&bench, &new, Method::GET, &format!("/v1/sessions/{}/messages", new.id)).await;
    assert!(log.text.contains("handed over"), "{}", log.text);
    assert!(!log.text.contains("tea"), "{}", log.text);
}

#[tokio::test]
async fn sbp_l1_12_rules_are_told_before_facts_and_travel() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let memories = json!({ "memories": [
        { "text": "The cat is called Ada." },
        { "text": "Answer in two sentences.", "kind": "procedural" },
        { "text": "We met in May.", "kind": "episodic" },
    ] });
    let put = bench.call(Method::PUT, "/v1/agents/default/memory", &[], &memories).await;
    assert_eq!(put.status, 200, "{}", put.text);
    let session = bench.session().await;
    bench.say(&session, "what is the cat called, and when did we meet?").await;
    let said = upstream.calls()[0].said();
    assert!(said[0].contains("Answer in two sentences.") && !said[0].contains("Ada"), "{said:?}");
    assert!(said[1].contains("Ada") && said[1].contains("May"), "{said:?}");
    assert!(!said[1].contains("two sentences"), "told once: {said:?}");
    // Whatever is asked, and also where nothing else is remembered.
    bench.say(&session, "xyzzy").await;
    assert!(upstream.calls()[1].said()[0].contains("Answer in two sentences."));

    let bundle = bench.bundle_of(&session).await;
    let there = Bench::start().await;
    made(&there.import_bundle(&bundle).await);
    let kept = list(&there.get("/v1/agents/default/memory").await.body["memories"]);
    let mut kept: Vec<_> =
        kept.iter().map(|m| (m["kind"].as_str().unwrap(), m["text"].as_str().unwrap())).collect();
    kept.sort_unstable();
    let expected = [
        ("episodic", "We met in May."),
        ("procedural", "Answer in two sentences."),
        ("semantic", "The cat is called Ada."),
    ];
    assert_eq!(kept, expected);
}

/// What a session and its branch cost, in turns of the scripted upstream: 0.001 USD, 1000 tokens in
/// and 100 out each.
fn spent(lineage: &Value, session: &Session) -> (u64, u64, u64) {
    let costs = list(&lineage["sessions"]);
    let cost = costs.iter().find(|cost| cost["session_id"] == session.id.as_str());
    let cost = cost.unwrap_or_else(|| panic!("no {} in {lineage}", session.id));
    let turns = |cost: &Value| {
        let turns = (cost["cost_usd"].as_f64().unwrap() * 1000.0).round() as u64;
        assert_eq!(cost["prompt_tokens"], turns * 1000, "{cost}");
        assert_eq!(cost["completion_tokens"], turns * 100, "{cost}");
        turns
    };
    let branch = &cost["branch"];
    assert_eq!(branch["complete"], true, "{branch}");
    (turns(cost), turns(branch), branch["sessions"].as_u64().unwrap())
}

#[tokio::test]
async fn sbp_l3_12_each_session_and_branch_has_its_costs_and_nothing_counts_twice() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        locked(config);
        config.prices.insert("*".into(), Price { input: 1.0, output: 0.0 });
    })
    .await;
    let say = async |session: &Session, turns: usize| {
        for _ in 0..turns {
            let body = turn(session, "m", "hi");
            let said = by_key(&bench, Method::POST, "/v1/chat/completions", body).await;
            assert_eq!(said.status, 200, "{}", said.text);
        }
    };
    let first = Session::of(&by_key(&bench, Method::POST, "/v1/sessions", json!({})).await.body);
    say(&first, 2).await;
    let fork = forked(&by_key(&bench, Method::POST, &of(&first, "fork"), json!({})).await);
    say(&fork, 3).await;
    let exported = by_key(&bench, Method::POST, &of(&fork, "export"), json!({})).await;
    let token = json!({ "roaming_token": exported.body["roaming_token"] });
    let import = made(&by_key(&bench, Method::POST, "/v1/sessions/import", token).await);
    say(&import, 1).await;
    let to = json!({ "to_agent_id": "cook" });
    let next = made(&by_key(&bench, Method::POST, &of(&first, "handoff"), to).await);
    say(&next, 4).await;
    for member in [&first, &fork, &import, &next] {
        let lineage = by_key(&bench, Method::GET, &of(member, "lineage"), Value::Null).await.body;
        assert_eq!(lineage["sessions"][0]["session_id"], member.id.as_str(), "this one first");
        assert_eq!(list(&lineage["sessions"]).len(), 4);
        assert_eq!(spent(&lineage, &first), (2, 10, 4), "own turns, and all below");
        assert_eq!(spent(&lineage, &fork), (3, 4, 2), "from its point on");
        assert_eq!(spent(&lineage, &import), (1, 1, 1), "from its arrival on");
        assert_eq!(spent(&lineage, &next), (4, 4, 1));
    }
    // Its token alone shows what it cost itself.
    let alone = by_token(&bench, &fork, Method::GET, &of(&fork, "lineage")).await;
    let costs = list(&alone.body["sessions"]);
    assert_eq!(costs.len(), 1, "{}", alone.text);
    assert_eq!((&costs[0]["session_id"], &costs[0]["branch"]), (&json!(fork.id), &Value::Null));
    assert_eq!(costs[0]["prompt_tokens"], 3000);
}

#[tokio::test]
async fn sbp_l4_02_desktops_and_browsers_reach_the_model_like_any_device() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    for device in ["desktop", "browser", "smart-fridge"] {
        let session = bench.session().await;
        let surface = json!({ "device_type": device, "max_output_tokens": 700 });
        let (_phone, _) = bench.attach_as(&session, surface).await;
        bench.say(&session, "hi").await;
        let call = upstream.calls().pop().unwrap();
        assert_eq!(call.body["max_tokens"], 700, "{device}");
        assert!(call.said()[0].starts_with("system: ") && call.said()[0].contains(device));
    }
}

#[tokio::test]
async fn sbp_l4_02_with_a_second_pass_a_device_is_told_of_where_its_answer_is_written() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.translate.model = "second-pass".into();
        (config.translate.first_token, config.translate.timeout) = (DEADLINE, DEADLINE);
    })
    .await;
    let session = bench.session().await;
    let watch = json!({ "device_type": "watch", "max_output_tokens": 61, "surface_id": "w",
                        "ui_capabilities": ["text", "streaming"] });
    let desktop = json!({ "device_type": "desktop", "max_output_tokens": 777, "surface_id": "d" });
    let join = async |surface: &Value| {
        let mut phone = bench.socket(&session.id).await;
        let mut first = hello(&session, surface.clone());
        first["join"] = json!(true);
        phone.send(first).await;
        phone.until("SESSION_ATTACHED").await;
        phone
    };
    let calls_of = |model: &str| -> Vec<_> {
        upstream.calls().into_iter().filter(|call| call.body["model"] == model).collect()
    };
    // A watch alone: its answer is written by the pass.
    let mut on_watch = join(&watch).await;
    // Written in a form that a watch cannot show.
    let say = async |text: &str| {
        let gate = upstream.gate();
        gate.send(Piece::Text(ORIGINAL.into())).ok().unwrap();
        drop(gate);
        assert_eq!(bench.say_to(&session, "gated", text).await.status, 200);
    };
    say("first").await;
    on_watch.until("TURN_COMPLETE").await;
    let first = calls_of("gated").pop().unwrap();
    assert!(!first.text.contains("watch") && first.body["max_tokens"].is_null(), "{}", first.text);
    let pass = calls_of("second-pass").pop().unwrap();
    assert!(pass.text.contains("watch") && pass.text.contains("61"), "{}", pass.text);
    // And a desktop beside it: it gets the first pass as it is.
    let mut on_desktop = join(&desktop).await;
    say("second").await;
    let shown = on_desktop.until("TURN_COMPLETE").await;
    assert_eq!(shown.last().unwrap()["status"], "complete");
    on_watch.until("TURN_COMPLETE").await;
    let first = calls_of("gated").pop().unwrap();
    assert_eq!(first.body["max_tokens"], 777);
    assert!(first.said()[0].contains("desktop") && !first.said()[0].contains("watch"));
    let passes = calls_of("second-pass");
    assert_eq!(passes.len(), 2, "one pass for each turn of the watch, and none for the desktop");
    assert!(passes[1].text.contains("watch") && !passes[1].text.contains("desktop"));
}

#[tokio::test]
async fn sbp_l5_01_a_tool_whose_name_models_do_not_take_is_called_by_its_own() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let long = "a".repeat(128);
    let tools = json!(["media.capture", long]);
    let (mut phone, welcome) = bench.attach_as(&session, json!({ "mcp_tools": tools })).await;
    assert_eq!(welcome["mcp_tools_registered"], tools);
    bench.say(&session, "what is there?").await;
    phone.until("TURN_COMPLETE").await;
    let offered = list(&upstream.calls()[0].body["tools"]);
    let names: Vec<_> =
        offered.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names[0], "surface_media_capture");
    assert_eq!((names.len(), names[1].len()), (2, 64));
    for (name, own) in names.iter().zip(["media.capture", long.as_str()]) {
        let ask = json!([[name, "{\"n\":1}"]]).to_string();
        let device = async {
            let call = phone.until("TOOL_CALL").await.pop().unwrap();
            assert_eq!(
                (&call["tool_name"], &call["tool_input"]),
                (&json!(own), &json!({ "n": 1 }))
            );
            let result =
                json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": "ok" });
            phone.send(result).await;
        };
        let (said, ()) = tokio::join!(bench.say_to(&session, "calls", &ask), device);
        assert_eq!(said.content(), "ok", "{}", said.text);
    }
}

#[tokio::test]
async fn sbp_l5_01_a_callers_tool_choice_stays_and_the_devices_tools_are_offered() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (_phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["camera"] })).await;
    let look_up = json!({ "type": "function", "function": { "name": "look_up" } });
    for choice in [json!("none"), json!("required"), json!("auto"), look_up.clone()] {
        let mut body = turn(&session, "m", "hi");
        body["tools"] = json!([look_up]);
        body["tool_choice"] = choice.clone();
        assert_eq!(bench.chat(body).await.status, 200);
        let call = upstream.calls().pop().unwrap();
        assert_eq!(call.body["tool_choice"], choice);
        let tools = list(&call.body["tools"]);
        let names: Vec<_> = tools.iter().map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(names, ["look_up", "surface_camera"], "{choice}");
    }
}
