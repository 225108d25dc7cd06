//! What clients see when the actor that owns their session fails: its store refuses commits, or
//! another replica takes the lease.

use std::time::{Duration, Instant};

use bowline_gateway::config::{Config, OFFLINE, Policy};
use serde_json::{Value, json};

use crate::bench::{Phone, eventually, hello, turn};
use crate::disk::on_a_bad_disk_with;
use crate::l2_surfaces::{join, message, plain};
use crate::upstream::{MockUpstream, Piece};

const CAMERA: &str = "call surface tool camera with {}";

fn asks(config: &mut Config) {
    config.tools.policy.insert("camera".into(), Policy::Ask);
}

async fn frame(phone: &mut Phone, kind: &str) -> Value {
    phone.until(kind).await.pop().unwrap()
}

#[tokio::test]
async fn sbp_l5_01_a_verdict_that_could_not_be_written_counts_as_soon_as_it_can() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk_with(&upstream, asks).await;
    let session = bench.session().await;
    let camera = json!({ "surface_id": "phone", "mcp_tools": ["camera"] });
    let (mut phone, _) = bench.attach_as(&session.as_owner(), camera).await;
    let device = async {
        let asked = frame(&mut phone, "APPROVAL_REQUEST").await;
        disk.refuse(Some("step_approval"));
        let id = &asked["approval_id"];
        phone
            .send(json!({ "type": "APPROVAL_DECISION", "approval_id": id, "approved": true }))
            .await;
        eventually("refused twice", async || disk.refusals() >= 2).await;
        disk.refuse(None);
        let call = frame(&mut phone, "TOOL_CALL").await;
        phone
            .send(json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": "a cat" }))
            .await;
        phone.until("TURN_COMPLETE").await
    };
    let key = [("Idempotency-Key", "camera")];
    let body = turn(&session, OFFLINE, CAMERA);
    // Its caller need not wait for a store that refuses; the turn goes on.
    let (_, _) = tokio::join!(bench.chat_as(&key, body.clone()), device);
    assert_eq!(bench.chat_as(&key, body).await.content(), "The tool answered: a cat");
}

#[tokio::test]
async fn g4_a_deadline_that_cannot_be_written_is_tried_again_with_pauses() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk_with(&upstream, |config| {
        asks(config);
        config.tools.approval_timeout = Duration::from_millis(50);
    })
    .await;
    let session = bench.session().await;
    let (_phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["camera"] })).await;
    disk.refuse(Some("step_approval"));
    let key = [("Idempotency-Key", "camera")];
    let body = turn(&session, OFFLINE, CAMERA);
    let refused = async {
        eventually("refused", async || disk.refusals() >= 1).await;
        let (since, before) = (Instant::now(), disk.refusals());
        eventually("refused again", async || disk.refusals() >= before + 4).await;
        // Four tries are at least three pauses apart.
        assert!(since.elapsed() >= Duration::from_millis(300), "{:?}", since.elapsed());
        disk.refuse(None);
    };
    // Nobody waits for a store that does not take it.
    let (told, ()) = tokio::join!(bench.chat_as(&key, body.clone()), refused);
    assert_eq!(told.status, 503, "{}", told.text);
    eventually("ended", async || bench.chat_as(&key, body.clone()).await.status == 200).await;
    let said = bench.chat_as(&key, body).await;
    assert!(said.content().contains("nobody agreed"), "{}", said.content());
}

#[tokio::test]
async fn sbp_l2_20_surfaces_of_a_session_that_somebody_else_took_are_sent_to_look_again() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk_with(&upstream, |_| {}).await;
    let session = bench.session().await;
    let (mut desk, _) = plain(&bench, &session, "desk").await;
    let (mut phone, _) = join(&bench, &session, "phone").await;
    disk.fence("accept");
    let key = [("Idempotency-Key", "after")];
    let said = bench.chat_as(&key, turn(&session, "m", "after")).await;
    assert_eq!(said.status, 200, "the next owner took it: {}", said.text);
    assert_eq!((desk.closed().await, phone.closed().await), (1012, 1012));
    // Both come back to all that they missed.
    for name in ["desk", "phone"] {
        let (mut back, welcome) = join(&bench, &session, name).await;
        assert_eq!(welcome["tether_turns_pending"], 1, "{name}");
        assert_eq!(frame(&mut back, "TETHER_TURN").await["content"], "answer 1", "{name}");
    }
}

#[tokio::test]
async fn sbp_l2_20_an_attach_whose_owner_is_lost_is_made_with_the_next_one() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk_with(&upstream, |_| {}).await;
    let session = bench.session().await;
    disk.fence("attach");
    let (mut phone, _) = plain(&bench, &session, "phone").await;
    phone.send(message("one", "hello")).await;
    phone.until("TURN_COMPLETE").await;
    assert_eq!(bench.log(&session).await.len(), 2);
}

#[tokio::test]
async fn sbp_l2_20_an_attach_that_the_store_refused_leaves_nothing_behind() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk_with(&upstream, |_| {}).await;
    let session = bench.session().await;
    disk.refuse(Some("attach"));
    let mut phone = bench.socket(&session.id).await;
    phone.send(hello(&session, json!({}))).await;
    assert_eq!(phone.closed().await, 1013);
    eventually("idle", async || bench.gateway.at_work().sessions == 0).await;
    disk.refuse(None);
    let (_phone, _) = bench.attach(&session).await;
    assert_eq!(bench.gateway.at_work().sessions, 1);
}

#[tokio::test]
async fn sbp_l2_20_a_question_is_not_shown_after_its_answer() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk_with(&upstream, |_| {}).await;
    let session = bench.session().await;
    bench.say(&session, "before").await;
    let (mut desk, _) = plain(&bench, &session, "desk").await;
    let gate = upstream.gate();
    let mut ask = message("one", "the question");
    ask["model"] = json!("gated");
    desk.send(ask).await;
    upstream.until_calls(2).await;
    // The phone knows of the running turn, and reads the log when it has ended.
    let go = disk.hold("shown_after");
    let (mut phone, _) = join(&bench, &session, "phone").await;
    gate.send(Piece::Text("the answer".into())).unwrap();
    drop(gate);
    desk.until("TURN_COMPLETE").await;
    go.send(()).unwrap();
    phone.send(json!({ "type": "PING" })).await;
    let frames = phone.until("PONG").await;
    let is_question = |frame: &&Value| frame["type"] == "USER_TURN";
    let asked: Vec<_> = frames.iter().filter(is_question).map(|f| &f["content"]).collect();
    assert_eq!(asked, ["before", "the question"], "{frames:#?}");
}

#[tokio::test]
async fn sbp_l2_18_with_no_place_to_wait_messages_are_held_and_still_taken_in_order() {
    let upstream = MockUpstream::start().await;
    let (bench, _) = on_a_bad_disk_with(&upstream, |config| config.limits.waiting_turns = 0).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    for n in 0..6 {
        phone.send(message(&format!("id-{n}"), &format!("message {n}"))).await;
    }
    for _ in 0..6 {
        phone.until("TURN_COMPLETE").await;
    }
    let log = bench.log(&session).await;
    let asked: Vec<_> = log.iter().filter(|(role, _)| role == "user").map(|(_, c)| &**c).collect();
    let sent: Vec<_> = (0..6).map(|n| format!("message {n}")).collect();
    assert_eq!(asked, sent);
}

#[tokio::test]
async fn g3_a_pong_comes_after_what_was_confirmed_before_the_ping_is_stored() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk_with(&upstream, |_| {}).await;
    let session = bench.session().await;
    bench.say(&session, "one").await;
    let (mut phone, _) = bench.attach_as(&session, json!({ "ack": "explicit" })).await;
    let turn = frame(&mut phone, "TETHER_TURN").await;
    let go = disk.hold("delivered");
    phone.send(json!({ "type": "TETHER_ACK", "seq": turn["seq"] })).await;
    phone.send(json!({ "type": "PING" })).await;
    // Answered at once, and read after the ping.
    phone.send(json!("not a frame")).await;
    let frames = phone.until("PROTOCOL_ERROR").await;
    assert!(frames.iter().all(|frame| frame["type"] != "PONG"), "{frames:#?}");
    go.send(()).unwrap();
    phone.until("PONG").await;
    assert_eq!(bench.show(&session).await["tether_turns_pending"], 0);
    phone.send(json!({ "type": "PING" })).await;
    phone.until("PONG").await;
}
