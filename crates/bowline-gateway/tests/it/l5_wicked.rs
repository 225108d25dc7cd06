//! SBP L5: malicious tool declarations and results of surfaces are bounded, and affect no other
//! client.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message as Packet;

use crate::bench::{Bench, Phone, Session, eventually, hello, list, turn};
use crate::upstream::MockUpstream;

/// The largest result of a tool, in bytes of JSON.
const LARGEST: usize = 1 << 20;

fn asking(session: &Session, tool: &str) -> Value {
    turn(session, "calls", &json!([[tool, "{}"]]).to_string())
}

async fn called(phone: &mut Phone) -> Value {
    phone.until("TOOL_CALL").await.pop().unwrap()
}

fn result(call: &Value, result: Value) -> Value {
    json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": result })
}

#[tokio::test]
async fn g9_an_answer_of_exactly_a_mebibyte_is_taken_and_a_byte_more_is_not() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.limits.surface_message = 4 << 20;
    })
    .await;
    // With its two quotation marks.
    let largest = "x".repeat(LARGEST - 2);
    for (name, text, fits) in [
        ("result", largest.clone(), true),
        ("result", format!("{largest}x"), false),
        // An error is a text, and counts without marks.
        ("error", format!("{largest}xx"), true),
        ("error", format!("{largest}xxx"), false),
    ] {
        let session = bench.session().await;
        let (mut phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["a"] })).await;
        let device = async {
            let call = called(&mut phone).await;
            let id = &call["call_id"];
            phone.send(json!({ "type": "TOOL_RESULT", "call_id": id, name: text })).await;
        };
        tokio::join!(bench.chat(asking(&session, "surface_a")), device);
        let log = bench.log(&session).await;
        let (_, content) = log.iter().find(|(role, _)| role == "tool").unwrap();
        assert_eq!(content.contains(&text), fits, "{name} of {} bytes", text.len());
        assert_eq!(content.contains("over 1048576 bytes"), !fits);
    }
}

#[tokio::test]
async fn g9_a_flood_of_results_answers_nothing_and_holds_nobody_up() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let (session, neighbour) = (bench.session().await, bench.session().await);
    let (mut phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["a"] })).await;
    let (mut other, _) = bench.attach_as(&neighbour, json!({ "mcp_tools": ["a"] })).await;
    let flood = async {
        let call = called(&mut phone).await;
        let (mut sink, stream) = phone.socket.split();
        // Not a word is read meanwhile.
        for n in 0..10_000 {
            let id = json!({ "call_id": format!("{n:032x}") });
            sink.feed(Packet::text(result(&id, json!("x".repeat(64))).to_string())).await.unwrap();
        }
        sink.send(Packet::text(result(&call, json!("after all")).to_string())).await.unwrap();
        (sink, stream)
    };
    let neighbours = async {
        let call = called(&mut other).await;
        other.send(result(&call, json!("undisturbed"))).await;
    };
    let (flooded, undisturbed, _phone, ()) = tokio::join!(
        bench.chat(asking(&session, "surface_a")),
        bench.chat(asking(&neighbour, "surface_a")),
        flood,
        neighbours
    );
    assert_eq!((flooded.content(), undisturbed.content()), ("after all", "undisturbed"));
}

#[tokio::test]
async fn sbp_l5_01_a_device_cannot_bury_a_model_in_tools() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let many: Vec<_> = (0..200)
        .map(|n| {
            json!({ "name": format!("t{n}"), "description": "d\u{202e}\u{7}".repeat(300),
                    "input_schema": { "description": "\u{e0041}seen" } })
        })
        .collect();
    let (phone, welcome) = bench.attach_as(&session, json!({ "mcp_tools": many })).await;
    assert_eq!(list(&welcome["mcp_tools_registered"]).len(), 64);
    bench.say(&session, "hi").await;
    let offered = list(&upstream.calls()[0].body["tools"]);
    assert_eq!(offered.len(), 64);
    for tool in &offered {
        assert_eq!(tool["function"]["description"], "d".repeat(300));
        assert_eq!(tool["function"]["parameters"]["description"], "seen");
    }
    drop(phone);
    // More than a message may be is not even read.
    let huge = json!({ "mcp_tools": [{ "name": "t", "description": "d".repeat(LARGEST) }] });
    let mut phone = bench.socket(&session.id).await;
    phone.send(hello(&session, huge)).await;
    assert_eq!(phone.closed().await, 1009);
    // Nor is what is too deep to be read.
    for (depth, answer) in [(40, "SESSION_ATTACHED"), (80, "PROTOCOL_ERROR")] {
        let deep = (0..depth).fold(json!({}), |inner, _| json!({ "properties": inner }));
        let tools = json!({ "mcp_tools": [{ "name": "deep", "input_schema": deep }] });
        let mut phone = bench.socket(&session.id).await;
        phone.send(hello(&session, tools)).await;
        assert_eq!(phone.next().await["type"], answer);
    }
}

#[tokio::test]
async fn sbp_l5_04_a_tool_that_went_with_its_device_is_not_asked_of_the_next_one() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.tools.wait_for_surface = std::time::Duration::from_secs(20);
    })
    .await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["a"] })).await;
    let device = async {
        called(&mut phone).await;
        // Another one takes the session, with another tool, and answers what it was not asked.
        let (mut desk, _) = bench.attach_as(&session, json!({ "mcp_tools": ["b"] })).await;
        for _ in 0..100 {
            desk.send(result(&json!({ "call_id": "a" }), json!("of b"))).await;
        }
        desk.send(json!({ "type": "CANCEL_TURN" })).await;
        let seen = desk.until("TURN_COMPLETE").await;
        assert!(seen.iter().all(|frame| frame["type"] != "TOOL_CALL"), "{seen:?}");
    };
    let (said, ()) = tokio::join!(bench.chat(asking(&session, "surface_a")), device);
    assert_eq!(said.body["sbp"]["turn_status"], "cancelled", "{}", said.text);
    drop(phone);
    let at_rest = async || bench.gateway.at_work() == bowline_gateway::AtWork::default();
    eventually("at rest", at_rest).await;
}
