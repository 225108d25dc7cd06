//! SBP-L2-07: the names under which clients of wire version 0.9 read live text.

use bowline_gateway::config::Price;
use serde_json::{Value, json};

use crate::bench::{Bench, Phone, Session, hello};
use crate::phone::joined;
use crate::upstream::{MockUpstream, Piece};

/// In front of an upstream whose answers cost 0.003 dollars each.
async fn priced(upstream: &MockUpstream) -> Bench {
    Bench::before_with(upstream, |config| {
        config.prices.insert("*".into(), Price { input: 2.0, output: 10.0 });
    })
    .await
}

async fn attach(bench: &Bench, session: &Session, version: Option<&str>) -> Phone {
    let mut phone = bench.socket(&session.id).await;
    let mut hello = hello(session, json!({ "device_type": "desktop" }));
    if let Some(version) = version {
        hello["sbp_version"] = json!(version);
    }
    phone.send(hello).await;
    assert_eq!(phone.next().await["type"], "SESSION_ATTACHED");
    phone
}

fn of_type<'a>(frames: &'a [Value], kind: &str) -> Vec<&'a Value> {
    frames.iter().filter(|frame| frame["type"] == kind).collect()
}

fn fields(frame: &Value) -> Vec<&str> {
    frame.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn sbp_l2_07_a_client_of_0_9_finds_text_step_model_and_cost() {
    let upstream = MockUpstream::start().await;
    let bench = priced(&upstream).await;
    for version in [None, Some("0.9")] {
        let session = bench.session().await;
        let mut phone = attach(&bench, &session, version).await;
        for step in 1..=2 {
            assert_eq!(bench.say_to(&session, "m", "hi").await.status, 200);
            let frames = phone.until("TURN_COMPLETE").await;
            let chunks = of_type(&frames, "TURN_CHUNK");
            assert!(!chunks.is_empty());
            for chunk in chunks {
                assert_eq!(chunk["chunk"], chunk["delta"]);
                assert_eq!(chunk["content"], chunk["delta"]);
                assert_eq!((&chunk["step"], &chunk["model"]), (&json!(step), &json!("m")));
            }
            let complete = frames.last().unwrap();
            assert_eq!((&complete["step"], &complete["step_count"]), (&json!(step), &json!(step)));
            assert_eq!((&complete["model"], &complete["cost_usd"]), (&json!("m"), &json!(0.003)));
        }
    }
}

#[tokio::test]
async fn sbp_l2_07_live_text_says_its_step_and_model_before_the_turn_ends() {
    let upstream = MockUpstream::start().await;
    let bench = priced(&upstream).await;
    let session = bench.session().await;
    assert_eq!(bench.say_to(&session, "m", "first").await.status, 200);
    let mut phone = attach(&bench, &session, None).await;
    let gate = upstream.gate();
    gate.send(Piece::Text("half".into())).unwrap();
    let message = json!({ "type": "USER_MESSAGE", "content": "second", "client_turn_id": "c",
                          "model": "gated" });
    phone.send(message).await;
    let frames = phone.until("TURN_CHUNK").await;
    let chunk = frames.last().unwrap();
    assert_eq!((&chunk["chunk"], &chunk["step"]), (&json!("half"), &json!(2)), "{chunk}");
    assert_eq!(chunk["model"], "gated");
    drop(gate);
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!(frames.last().unwrap()["step"], 2);
}

#[tokio::test]
async fn sbp_l2_07_a_client_of_1_2_gets_the_text_once() {
    let upstream = MockUpstream::start().await;
    let bench = priced(&upstream).await;
    let session = bench.session().await;
    let mut phone = attach(&bench, &session, Some("1.2")).await;
    assert_eq!(bench.say_to(&session, "m", "hi").await.status, 200);
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!(joined(&frames), "answer 1");
    let mut expected = ["type", "chunk_id", "delta", "session_id", "seq", "offset"];
    expected.sort_unstable();
    for chunk in of_type(&frames, "TURN_CHUNK") {
        let mut fields = fields(chunk);
        fields.sort_unstable();
        assert_eq!(fields, expected);
    }
    let complete = frames.last().unwrap();
    assert!(!fields(complete).contains(&"step") && !fields(complete).contains(&"cost_usd"));
}
