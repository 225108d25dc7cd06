//! SBP L2: the attach handshake and its authorisation.

use std::time::Duration;

use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message as Packet;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::bench::{Bench, LOCAL_KEY, Phone, hello};

#[tokio::test]
async fn sbp_l2_01_a_surface_attaches_by_websocket_with_json_text_frames() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    phone.send(json!({ "type": "PING" })).await;
    assert_eq!(phone.next().await["type"], "PONG");
}

#[tokio::test]
async fn sbp_l2_02_anything_but_attach_first_is_a_protocol_error() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let other = json!({ "type": "ATTACH_SESSION", "session_id": "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f",
                        "session_token": session.token });
    for first in [
        Packet::text(r#"{"type":"PONG"}"#),
        Packet::text("not json"),
        Packet::text("[]"),
        Packet::text(r#"{"type":"ATTACH_SESSION"}"#),
        Packet::text(other.to_string()),
        Packet::binary(hello(&session, json!({})).to_string().into_bytes()),
    ] {
        let mut phone = bench.socket(&session.id).await;
        phone.socket.send(first.clone()).await.unwrap();
        assert_eq!(phone.next().await["type"], "PROTOCOL_ERROR", "{first:?}");
        assert_eq!(phone.closed().await, 1003);
    }
}

#[tokio::test]
async fn sbp_l2_02_a_socket_that_says_nothing_is_closed() {
    let bench = Bench::with(|config| {
        config.limits.attach_timeout = Duration::from_millis(50);
    })
    .await;
    let session = bench.session().await;
    let mut phone = bench.socket(&session.id).await;
    assert_eq!(phone.next().await["type"], "PROTOCOL_ERROR");
    assert_eq!(phone.closed().await, 1003);
}

#[tokio::test]
async fn sbp_l2_03_unknown_sessions_and_wrong_tokens_are_told_apart() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    for nobody in ["0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f", "not-a-uuid"] {
        let mut phone = bench.socket(nobody).await;
        let frame = json!({ "type": "ATTACH_SESSION", "session_id": nobody, "session_token": session.token });
        phone.send(frame).await;
        assert_eq!(phone.next().await["type"], "SESSION_NOT_FOUND");
        assert_eq!(phone.closed().await, 4004);
    }
    for wrong in [json!("wrong"), json!(null), json!(5), json!("")] {
        let mut phone = bench.socket(&session.id).await;
        let mut frame = hello(&session, json!({}));
        frame["session_token"] = wrong;
        phone.send(frame).await;
        assert_eq!(phone.next().await["type"], "FORBIDDEN");
        assert_eq!(phone.closed().await, 4003);
    }
}

#[tokio::test]
async fn sbp_l2_03_the_machines_owner_attaches_with_the_local_key() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let url = format!("ws://{}/v1/sbp/ws/{}", bench.gateway.address(), session.id);
    let mut request = url.into_client_request().unwrap();
    let key = format!("Bearer {LOCAL_KEY}").parse().unwrap();
    request.headers_mut().insert("authorization", key);
    let (socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let mut phone = Phone { socket };
    phone.send(json!({ "type": "ATTACH_SESSION", "session_id": session.id })).await;
    assert_eq!(phone.next().await["type"], "SESSION_ATTACHED");
}

#[tokio::test]
async fn sbp_l2_04_the_welcome_says_who_and_how_much_is_waiting() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    bench.say(&session, "echo one").await;
    bench.say(&session, "echo two").await;
    let surface = json!({ "device_type": "smart-fridge", "surface_id": "kitchen" });
    let (_phone, welcome) = bench.attach_as(&session, surface).await;
    let expected = json!({
        "type": "SESSION_ATTACHED", "session_id": session.id, "surface_id": "kitchen",
        "device_type": "smart-fridge", "queued_turns": 2, "tether_turns_pending": 2,
        "mcp_tools_registered": [], "sbp_version": "1.2", "sbp_level": "L5",
    });
    assert_eq!(welcome, expected);
    let seen = bench.show(&session).await;
    assert_eq!(seen["surface"]["device_type"], "smart-fridge");
}

#[tokio::test]
async fn sbp_l2_04_an_older_wire_version_is_answered_with_its_own_name() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let mut phone = bench.socket(&session.id).await;
    let mut frame = hello(&session, Value::Null);
    frame["sbp_version"] = json!("0.9");
    phone.send(frame).await;
    let welcome = phone.next().await;
    assert_eq!(
        (&welcome["sbp_version"], &welcome["device_type"]),
        (&json!("0.9"), &json!("unknown"))
    );
}

#[tokio::test]
async fn sbp_l2_16_a_second_surface_takes_over_and_the_first_is_told() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut first, _) = bench.attach(&session).await;
    let (mut second, _) = bench.attach(&session).await;
    assert_eq!(first.closed().await, 4009);
    // The late goodbye of the first does not touch the second.
    bench.say(&session, "echo for the second").await;
    let frames = second.until("TURN_COMPLETE").await;
    assert_eq!(crate::bench::joined(&frames), "for the second");
    let seen = bench.show(&session).await;
    assert!(seen["surface"].is_object() && seen["status"] == "running", "{seen}");
}

#[tokio::test]
async fn sbp_l2_16_attaching_twice_on_one_socket_changes_nothing() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    phone.send(hello(&session, json!({}))).await;
    phone.send(json!({ "type": "PING" })).await;
    assert_eq!(phone.next().await["type"], "PONG");
}

#[tokio::test]
async fn sbp_l2_17_unknown_frames_are_ignored_and_bad_ones_answered() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    phone.send(json!({ "type": "FROM_THE_FUTURE", "x": [1] })).await;
    phone.send(json!({ "type": "TOOL_RESULT", "call_id": "nobody asked" })).await;
    phone.socket.send(Packet::text("{broken")).await.unwrap();
    assert_eq!(phone.next().await["type"], "PROTOCOL_ERROR");
    phone.send(json!({ "type": "TETHER_ACK", "seq": "five" })).await;
    let error = phone.next().await;
    assert!(error["detail"].as_str().unwrap().contains("TETHER_ACK"), "{error}");
    phone.send(json!({ "type": "PING" })).await;
    assert_eq!(phone.next().await["type"], "PONG");
}

#[tokio::test]
async fn sbp_l2_17_a_surface_that_answers_no_ping_is_dropped() {
    let bench = Bench::with(|config| {
        config.limits.ping_every = Duration::from_millis(30);
        config.limits.pong_timeout = Duration::from_millis(30);
    })
    .await;
    let session = bench.session().await;
    bench.say(&session, "echo x").await;
    // Attached, and then it neither reads nor writes.
    let (_silent, _) = bench.attach(&session).await;
    bench.until_status(&session, "suspended").await;
}

#[tokio::test]
async fn sbp_l2_17_a_surface_that_answers_pings_stays() {
    let bench = Bench::with(|config| {
        config.limits.ping_every = Duration::from_millis(20);
    })
    .await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    for _ in 0..3 {
        assert_eq!(phone.next().await["type"], "PING");
        phone.send(json!({ "type": "PONG" })).await;
    }
    assert!(bench.show(&session).await["surface"].is_object());
}

#[tokio::test]
async fn g11_a_message_over_the_limit_is_refused_as_too_big() {
    let bench = Bench::with(|config| config.limits.surface_message = 4096).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let _ = phone.socket.send(Packet::text("x".repeat(5000))).await;
    assert_eq!(phone.closed().await, 1009);
    bench.until(&session, "detached", |seen| seen["surface"].is_null()).await;
}
