//! G4: store failures: what the caller is told, and what is stored afterwards.

use std::sync::Arc;

use bowline_gateway::config::Config;
use bowline_store::{Error, Store};
use reqwest::Method;
use serde_json::{Value, json};

use crate::audit::audit;
use crate::bench::{Bench, eventually, turn};
use crate::failing::Failing;
use crate::l2_delivery::message;
use crate::upstream::MockUpstream;

const KEY: (&str, &str) = ("Idempotency-Key", "the-key");

pub(crate) fn busy() -> Error {
    Error::Unavailable("a test says so".into())
}

async fn on_a_bad_disk(upstream: &MockUpstream) -> (Bench, Arc<Failing>) {
    // Nothing is kept in memory: histories are read from the store each time.
    on_a_bad_disk_with(upstream, |config| config.limits.history_memory = 0).await
}

pub(crate) async fn on_a_bad_disk_with(
    upstream: &MockUpstream,
    change: impl FnOnce(&mut Config),
) -> (Bench, Arc<Failing>) {
    let mut disk = None;
    let failing = |store| {
        let failing = Arc::new(Failing::new(store));
        disk = Some(Arc::clone(&failing));
        failing as Arc<dyn Store>
    };
    let bench = Bench::before_on(upstream, failing, change).await;
    (bench, disk.unwrap())
}

#[tokio::test]
async fn g4_a_turn_whose_store_was_busy_ends_once_under_its_key() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk(&upstream).await;
    for (n, operation) in ["accept", "history", "end"].into_iter().enumerate() {
        let session = bench.session().await;
        bench.say(&session, "before").await;
        let body = turn(&session, "m", "x");
        disk.fail(operation, busy());
        let told = bench.chat_as(&[KEY], body.clone()).await;
        assert_eq!(told.status, 503, "{operation}: {}", told.text);
        assert!(!told.text.contains("a test says so"), "a database's words are for the log");
        eventually("answered under the same key", async || {
            bench.chat_as(&[KEY], body.clone()).await.status == 200
        })
        .await;
        assert_eq!(bench.log(&session).await.len(), 4, "{operation}: stored once");
        assert_eq!(upstream.calls().len(), 2 * (n + 1), "{operation}: asked once");
    }
}

#[tokio::test]
async fn g2_a_message_that_was_accepted_is_answered_though_the_store_was_busy() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk(&upstream).await;
    let session = bench.session().await;
    bench.say(&session, "before").await;
    let (mut phone, _) = bench.attach(&session).await;
    disk.fail("history", busy());
    phone.send(message("one", "m")).await;
    let frames = phone.until("TURN_COMPLETE").await;
    assert!(disk.has_failed() && frames.iter().any(|frame| frame["type"] == "TURN_ACCEPTED"));
    assert_eq!(bench.log(&session).await.last().unwrap().1, "answer 2");
}

#[tokio::test]
async fn g4_a_turn_that_cannot_go_on_is_not_waited_for_for_ever() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk(&upstream).await;
    let session = bench.session().await;
    bench.say(&session, "before").await;
    disk.fail("history", Error::Corrupt("a test says so".into()));
    let told = bench.chat_as(&[KEY], turn(&session, "m", "x")).await;
    assert_eq!(told.refusal(), (500, "SBP_INTERNAL"), "{}", told.text);
    // It has ended, and its key is free.
    assert_eq!(bench.chat_as(&[KEY], turn(&session, "m", "x")).await.status, 200);
    assert_eq!(bench.say(&session, "after").await.status, 200, "the session goes on");
}

#[tokio::test]
async fn g13_a_store_that_cannot_write_is_not_ready() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk(&upstream).await;
    disk.fail("check", busy());
    let not_ready = bench.get("/readyz").await;
    assert_eq!((not_ready.status, &not_ready.body["status"]), (503, &json!("not ready")));
    assert_eq!(bench.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn g4_a_session_that_was_not_stored_is_not_confirmed() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk(&upstream).await;
    for operation in ["create_session", "delete", "status"] {
        let session = bench.session().await;
        let path = format!("/v1/sessions/{}", session.id);
        disk.fail(operation, busy());
        let told = match operation {
            "create_session" => bench.post("/v1/sessions", json!({})).await,
            "delete" => bench.call(Method::DELETE, &path, &[], &Value::Null).await,
            _ => {
                let done = json!({ "status": "completed" });
                bench.call(Method::PATCH, &format!("{path}/status"), &[], &done).await
            }
        };
        assert_eq!(told.status, 503, "{operation}: {}", told.text);
        assert_eq!(bench.show(&session).await["status"], "idle", "{operation}");
    }
    assert_eq!(bench.sessions().await.len(), 3);
}

#[tokio::test]
async fn g4_a_delete_whose_answer_was_lost_is_answered_and_recorded_as_done() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk(&upstream).await;
    let session = bench.session().await;
    let path = format!("/v1/sessions/{}", session.id);
    disk.lose_answer("delete");
    let told = bench.call(Method::DELETE, &path, &[], &Value::Null).await;
    assert_eq!(told.status, 204, "{}", told.text);
    assert!(bench.sessions().await.is_empty());
    let deeds = audit(&bench).await;
    let deleted = deeds.iter().filter(|deed| deed["action"] == "session.delete");
    assert!(deleted.map(|deed| &deed["object"]).eq([&session.id]), "{deeds:?}");
    let again = bench.call(Method::DELETE, &path, &[], &Value::Null).await;
    assert_eq!(again.status, 404, "{}", again.text);
}

#[tokio::test]
async fn g2_a_turn_that_is_asked_for_while_a_surface_attaches_comes_behind_what_was_pending() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk(&upstream).await;
    let session = bench.session().await;
    bench.say(&session, "before").await;
    let go = disk.hold("attach");
    let attaching = async {
        let (mut phone, _) = bench.attach(&session).await;
        let first = phone.next().await["content"].clone();
        (first, phone.until("TURN_COMPLETE").await)
    };
    let meanwhile = async {
        // What was pending has been read to its end before there is more.
        eventually("read", async || disk.ended("shown_after") >= 2).await;
        let said = bench.say(&session, "meanwhile");
        let release = async { go.send(()).unwrap() };
        assert_eq!(tokio::join!(said, release).0.status, 200);
    };
    let ((first, frames), ()) = tokio::join!(attaching, meanwhile);
    assert_eq!(first, "answer 1");
    let text: String = frames.iter().filter_map(|frame| frame["delta"].as_str()).collect();
    assert_eq!(text, "answer 2");
}
