//! Cancel from any client, and user messages over the WebSocket.

use serde_json::json;

use crate::bench::{Bench, joined};
use crate::l2_delivery::message;
use crate::upstream::{MockUpstream, Piece};

#[tokio::test]
async fn cancel_over_http_keeps_and_marks_what_was_produced() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let gate = upstream.gate();
    phone.send(message("one", "gated")).await;
    gate.send(Piece::Text("so far".into())).unwrap();
    phone.until("TURN_CHUNK").await;
    let cancelled = bench.post(&format!("/v1/sessions/{}/cancel", session.id), json!({})).await;
    assert_eq!((cancelled.status, &cancelled.body["cancelled"]), (200, &json!(true)));
    let complete = phone.until("TURN_COMPLETE").await.pop().unwrap();
    assert_eq!(
        (&complete["status"], &complete["turn_id"]),
        (&json!("cancelled"), &cancelled.body["turn_id"])
    );
    assert_eq!(bench.log(&session).await.last().unwrap().1, "so far");
    let idle = bench.post(&format!("/v1/sessions/{}/cancel", session.id), json!({})).await;
    assert_eq!(idle.body["cancelled"], false);
}

#[tokio::test]
async fn cancel_over_the_socket_answers_the_waiting_http_caller_too() {
    let upstream = MockUpstream::start().await;
    let bench = std::sync::Arc::new(Bench::before(&upstream).await);
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let gate = upstream.gate();
    let asked = tokio::spawn({
        let (bench, session) = (bench.clone(), session.clone());
        async move { bench.say_to(&session, "gated", "go").await }
    });
    gate.send(Piece::Text("half".into())).unwrap();
    phone.until("TURN_CHUNK").await;
    phone.send(json!({ "type": "CANCEL_TURN" })).await;
    let said = asked.await.unwrap();
    assert_eq!((said.status, said.content()), (200, "half"));
    assert_eq!(said.body["sbp"]["turn_status"], "cancelled");
}

#[tokio::test]
async fn a_cancelled_turn_that_said_nothing_is_not_sent_to_the_model_again() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, json!({})).await;
    let _gate = upstream.gate();
    phone.send(message("one", "gated")).await;
    phone.until("TURN_ACCEPTED").await;
    while upstream.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    phone.send(json!({ "type": "CANCEL_TURN" })).await;
    phone.until("TURN_COMPLETE").await;
    bench.say(&session, "next").await;
    let calls = upstream.calls();
    assert_eq!(calls.last().unwrap().said(), ["user: echo hello", "user: next"]);
}

#[tokio::test]
async fn a_message_over_the_socket_is_accepted_once_and_answered() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    for _ in 0..3 {
        phone.send(message("the-same", "bowline/offline")).await;
    }
    let (mut accepted, mut complete, mut chunks) = (Vec::new(), 0, Vec::new());
    while accepted.len() < 3 || complete < 1 {
        let frame = phone.next().await;
        match frame["type"].as_str().unwrap() {
            "TURN_ACCEPTED" => accepted.push(frame["turn_id"].clone()),
            "TURN_COMPLETE" => complete += 1,
            _ => chunks.push(frame),
        }
    }
    assert!(accepted.iter().all(|id| id == &accepted[0]), "{accepted:?}");
    assert_eq!(joined(&chunks), "hello");
    assert_eq!(bench.show(&session).await["step_count"], 1);

    let mut other = message("the-same", "bowline/offline");
    other["content"] = json!("echo other words");
    phone.send(other).await;
    let failed = phone.until("TURN_FAILED").await.pop().unwrap();
    assert_eq!(
        (&failed["code"], &failed["client_turn_id"]),
        (&json!("SBP_SESSION_CONFLICT"), &json!("the-same"))
    );
}

#[tokio::test]
async fn a_message_whose_model_fails_is_kept_with_the_reason() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    phone.send(message("one", "status-400")).await;
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!(frames.last().unwrap()["status"], "failed");
    assert!(joined(&frames).contains("scripted refusal"), "{frames:?}");
    let log = bench.log(&session).await;
    assert_eq!(log[0], ("user".into(), "echo hello".into()));
    assert_eq!(log[1].0, "system");
}

#[tokio::test]
async fn a_deleted_session_lets_its_surface_go() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let url = bench.url(&format!("/v1/sessions/{}", session.id));
    assert_eq!(bench.http.delete(url).send().await.unwrap().status(), 204);
    assert_eq!(phone.next().await["type"], "SESSION_NOT_FOUND");
    assert_eq!(phone.closed().await, 4004);
}
