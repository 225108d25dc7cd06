//! SBP L5: agents can call tools on the user's device.

use std::time::Duration;

use bowline_gateway::config::Timeout;
use serde_json::{Value, json};

use crate::bench::{Bench, Phone, Session, list, turn};
use crate::l1_endings::{RawUpstream, closed};
use crate::upstream::MockUpstream;

/// A bench before the scripted upstream, a session, and a phone with these tools.
async fn with_tools(upstream: &MockUpstream, tools: Value) -> (Bench, Session, Phone, Value) {
    let bench = Bench::before(upstream).await;
    let session = bench.session().await;
    let (phone, welcome) = bench.attach_as(&session, json!({ "mcp_tools": tools })).await;
    (bench, session, phone, welcome)
}

/// Asks the model to call these tools.
fn asking(session: &Session, calls: &[(&str, &str)]) -> Value {
    turn(session, "calls", &json!(calls).to_string())
}

async fn answer(phone: &mut Phone, call: &Value, result: Value) {
    phone
        .send(json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": result }))
        .await;
}

async fn called(phone: &mut Phone) -> Value {
    phone.until("TOOL_CALL").await.pop().unwrap()
}

#[tokio::test]
async fn sbp_l5_01_declared_tools_are_in_the_models_list_and_no_others() {
    let upstream = MockUpstream::start().await;
    let schema = json!({ "type": "object", "properties": { "zoom": { "type": "number" } } });
    let tools = json!([
        "gps", { "name": "camera", "description": "Takes\na photo", "input_schema": schema }, "x y",
    ]);
    let bench = Bench::before_with(&upstream, |config| {
        config.tools.surface = vec!["g*".into(), "camera".into()];
    })
    .await;
    let session = bench.session().await;
    let surface = json!({ "mcp_tools": [tools[0], tools[1], "contacts", tools[2]] });
    let (phone, welcome) = bench.attach_as(&session, surface).await;
    assert_eq!(welcome["mcp_tools_registered"], json!(["gps", "camera"]));
    let mut own = turn(&session, "m", "hi");
    own["tools"] = json!([{ "type": "function", "function": { "name": "look_up" } }]);
    bench.chat(own).await;
    let offered = list(&upstream.calls()[0].body["tools"]);
    let names: Vec<_> = offered.iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["look_up", "surface_gps", "surface_camera"]);
    assert_eq!(offered[2]["function"]["parameters"], schema);
    assert_eq!(offered[2]["function"]["description"], "Takesa photo");
    drop(phone);
    bench.until_status(&session, "suspended").await;
    bench.say(&session, "alone").await;
    assert!(upstream.calls()[1].body["tools"].is_null(), "gone with their device");
}

#[tokio::test]
async fn sbp_l5_02_calls_run_at_once_and_are_answered_in_any_order() {
    let upstream = MockUpstream::start().await;
    let (bench, session, mut phone, _) = with_tools(&upstream, json!(["a", "b"])).await;
    let asked = asking(&session, &[("surface_a", "{\"n\":1}"), ("surface_b", "{\"n\":2}")]);
    let turn = bench.chat(asked);
    let device = async {
        let (first, second) = (called(&mut phone).await, called(&mut phone).await);
        assert_eq!((&first["tool_name"], &first["tool_input"]), (&json!("a"), &json!({ "n": 1 })));
        assert_ne!(first["call_id"], second["call_id"]);
        assert!(first["call_id"].as_str().unwrap().parse::<uuid::Uuid>().is_ok());
        answer(&mut phone, &second, json!({ "of": "b" })).await;
        answer(&mut phone, &first, json!("of a")).await;
        phone
    };
    let (turn, _phone) = tokio::join!(turn, device);
    assert_eq!(turn.content(), "of a | {\"of\":\"b\"}", "{}", turn.text);
    let kinds: Vec<_> = bench.entries(&session).await;
    let kinds: Vec<_> = kinds.iter().map(|entry| entry["kind"].clone()).collect();
    assert_eq!(kinds, ["message", "action", "action", "action", "turn"]);
    assert!(!turn.text.contains("tool_calls"), "no business of the caller's");
}

#[tokio::test]
async fn sbp_l5_03_an_error_a_timeout_and_a_drop_are_results_and_the_agent_goes_on() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.tools.timeouts.insert("slow".into(), Timeout(Duration::from_millis(50)));
    })
    .await;
    let session = bench.session().await;
    let surface = json!({ "mcp_tools": ["bad", "slow", "gone"] });
    let (mut phone, _) = bench.attach_as(&session, surface).await;
    let calls = [("surface_bad", "{}"), ("surface_slow", ""), ("surface_bad", "{not json")];
    let device = async {
        let mut late = Value::Null;
        for _ in 0..2 {
            let call = called(&mut phone).await;
            if call["tool_name"] == "slow" {
                late = call;
                continue;
            }
            let error = json!({ "type": "TOOL_RESULT", "call_id": call["call_id"],
                                "error": "no film" });
            phone.send(error).await;
        }
        (late, phone)
    };
    let (turn, (late, mut phone)) = tokio::join!(bench.chat(asking(&session, &calls)), device);
    let results: Vec<_> = turn.content().split(" | ").collect();
    assert!(results[0].contains("no film"), "{results:?}");
    assert!(results[1].contains("did not answer within"), "{results:?}");
    assert!(results[2].contains("not JSON"), "{results:?}");
    answer(&mut phone, &late, json!("too late")).await;
    let device = async {
        called(&mut phone).await;
        drop(phone);
    };
    let (turn, ()) = tokio::join!(bench.chat(asking(&session, &[("surface_gone", "{}")])), device);
    assert!(turn.content().contains("disconnected before it answered"), "{}", turn.content());
}

#[tokio::test]
async fn sbp_l5_04_strangers_results_and_undeclared_tools_come_to_nothing() {
    let upstream = MockUpstream::start().await;
    let (bench, session, mut phone, _) = with_tools(&upstream, json!(["a"])).await;
    let other = bench.session().await;
    let (mut stranger, _) = bench.attach_as(&other, json!({ "mcp_tools": ["a"] })).await;
    let device = async {
        let call = called(&mut phone).await;
        answer(&mut stranger, &call, json!("a stranger's")).await;
        answer(&mut phone, &json!({ "call_id": "made-up" }), json!("nobody's")).await;
        answer(&mut phone, &call, json!("the device's")).await;
        answer(&mut phone, &call, json!("once more")).await;
        phone
    };
    let (turn, _phone) = tokio::join!(bench.chat(asking(&session, &[("surface_a", "{}")])), device);
    assert_eq!(turn.content(), "the device's");
    // A tool that nobody declared is the caller's affair, as any tool it did not name.
    let undeclared = bench.chat(asking(&session, &[("surface_b", "{}")])).await;
    assert!(undeclared.text.contains("surface_b"), "{}", undeclared.text);
    assert_eq!(undeclared.body["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn g9_an_answer_over_a_mebibyte_is_an_error_and_a_cancel_ends_the_wait() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.limits.surface_message = 4 << 20;
    })
    .await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["a"] })).await;
    let device = async {
        let call = called(&mut phone).await;
        answer(&mut phone, &call, json!("x".repeat(1 << 20))).await;
        &mut phone
    };
    let (turn, phone) = tokio::join!(bench.chat(asking(&session, &[("surface_a", "{}")])), device);
    assert!(turn.content().contains("over 1048576 bytes"), "{}", turn.content());
    let device = async {
        called(phone).await;
        phone.send(json!({ "type": "CANCEL_TURN" })).await;
    };
    let (turn, ()) = tokio::join!(bench.chat(asking(&session, &[("surface_a", "{}")])), device);
    assert_eq!(turn.body["sbp"]["turn_status"], "cancelled", "{}", turn.text);
    let log = bench.entries(&session).await;
    let last_results: Vec<_> = log.iter().filter(|entry| entry["kind"] == "action").collect();
    assert!(last_results.last().unwrap()["message"].to_string().contains("cancelled"));
}

/// With this store there is one replica, so the caller that waits for a result is in the process
/// that holds the surface's socket.
#[tokio::test]
async fn sbp_l5_05_no_second_gateway_can_hold_a_surface_of_the_same_sessions() {
    let bench = Bench::start().await;
    let second = bowline_store::sqlite::Sqlite::open(bench.folder.path());
    assert!(matches!(second, Err(bowline_store::OpenError::InUse { .. })), "{second:?}");
}

#[tokio::test]
async fn sbp_l5_02_the_built_in_agent_uses_the_device_too() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["camera"] })).await;
    let device = async {
        let call = called(&mut phone).await;
        assert_eq!(call["tool_input"], json!({ "mode": "photo" }));
        answer(&mut phone, &call, json!("a cat")).await;
        phone
    };
    let asked = "call surface tool camera with {\"mode\":\"photo\"}";
    let (said, mut phone) = tokio::join!(bench.say(&session, asked), device);
    assert_eq!(said.content(), "The tool answered: a cat");
    phone.until("TURN_COMPLETE").await;
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
