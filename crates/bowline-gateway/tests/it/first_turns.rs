//! G4: the first turn of a new session, which is stored together with the session or not at all.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_gateway::config::Remember;
use bowline_store::Error;
use serde_json::{Value, json};

use crate::bench::{Bench, Session, asked, eventually};
use crate::disk::{busy, on_a_bad_disk_with};
use crate::failing::Failing;
use crate::upstream::MockUpstream;

async fn on_a_bad_disk(upstream: &MockUpstream) -> (Bench, Arc<Failing>) {
    on_a_bad_disk_with(upstream, |config| config.memory.remember = Remember::Always).await
}

fn first(stream: bool) -> Value {
    let mut body = asked("m", "x", json!({}));
    body["stream"] = stream.into();
    body
}

#[tokio::test]
async fn g4_a_first_turn_that_cannot_be_written_is_503_and_leaves_nothing() {
    let upstream = MockUpstream::start().await;
    for stream in [false, true] {
        let (bench, disk) = on_a_bad_disk(&upstream).await;
        disk.fail("accept", busy());
        let told = bench.chat(first(stream)).await;
        assert_eq!(told.status, 503, "{}", told.text);
        assert!(disk.has_failed() && bench.sessions().await.is_empty());
        assert_eq!(bench.store.unfinished_turns().await.unwrap(), 0);
        eventually("nothing at work", async || bench.gateway.at_work().turns == 0).await;
        assert_eq!(bench.chat(first(stream)).await.status, 200, "and then it works");
    }
}

#[tokio::test]
async fn g4_a_first_turn_on_a_disk_that_failed_for_good_is_our_mistake_and_not_the_callers() {
    let upstream = MockUpstream::start().await;
    let cases = [
        ("accept", "m"),
        ("end", "m"),
        // It does something before it is over.
        ("append", "remembers"),
    ];
    for (operation, model) in cases {
        let (bench, disk) = on_a_bad_disk(&upstream).await;
        disk.fail(operation, Error::Fatal("a test says so".into()));
        let told = bench.chat(asked(model, "x", json!({}))).await;
        assert_eq!((told.status, told.code()), (500, "SBP_INTERNAL"), "{operation}: {}", told.text);
        assert!(disk.has_failed(), "{operation}");
    }
}

#[tokio::test]
async fn g4_who_waits_hears_at_once_that_nothing_can_be_written_however_long_the_model_takes() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk(&upstream).await;
    disk.fail("accept", busy());
    let told = bench.chat(asked("hang", "x", json!({}))).await;
    assert_eq!(told.status, 503, "{}", told.text);
    eventually("nothing at work", async || bench.gateway.at_work().turns == 0).await;
}

#[tokio::test]
async fn g16_a_first_turn_that_outlasts_the_stop_is_left_for_the_next_start() {
    let upstream = MockUpstream::start().await;
    let (bench, _) = on_a_bad_disk_with(&upstream, |config| {
        config.limits.drain = Duration::from_millis(200);
    })
    .await;
    let told = tokio::spawn({
        let (http, url) = (bench.http.clone(), bench.url("/v1/chat/completions"));
        async move { http.post(url).json(&asked("hang", "x", json!({}))).send().await }
    });
    upstream.until_calls(1).await;
    let Bench { gateway, store, .. } = bench;
    gateway.stop().await;
    assert_eq!(store.unfinished_turns().await.unwrap(), 1, "the next start takes it up");
    told.abort();
}

#[tokio::test]
async fn g4_a_first_turn_is_on_disk_before_the_model_is_asked_and_anyone_is_told() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk(&upstream).await;
    for (n, stream) in [false, true].into_iter().enumerate() {
        let write = disk.hold("accept");
        let mut told = pin!(bench.chat(first(stream)));
        tokio::select! {
            biased;
            told = &mut told => panic!("told too soon: {}", told.text),
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
        assert_eq!(upstream.calls().len(), n, "asked too soon");
        write.send(()).unwrap();
        assert_eq!(told.await.status, 200);
    }
}

#[tokio::test]
async fn g4_a_refused_turn_leaves_nothing_even_if_the_store_was_busy() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk(&upstream).await;
    disk.fail("forget", busy());
    let told = bench.chat(asked("status-400", "x", json!({}))).await;
    assert_eq!(told.status, 503, "what became of it was unknown: {}", told.text);
    eventually("gone", async || bench.sessions().await.is_empty()).await;
    assert_eq!(bench.store.unfinished_turns().await.unwrap(), 0);
}

#[tokio::test]
async fn g4_a_first_turn_is_stored_whole_or_not_at_all() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    assert_eq!(bench.chat(asked("status-400", "x", json!({}))).await.status, 400);
    assert_eq!(bench.sessions().await.len(), 0);
    let told = bench.chat(first(false)).await;
    assert_eq!(told.status, 200, "{}", told.text);
    let session = Session::of(&told.body["sbp"]);
    assert_eq!(bench.log(&session).await.len(), 2);
    assert_eq!(told.body["sbp"]["seq"], 2);
    let there = bench.show(&session).await;
    let counts = ["step_count", "message_count", "tether_turns_pending"].map(|name| &there[name]);
    assert_eq!(counts, [1, 2, 1], "{there}");
}

#[tokio::test]
async fn sbp_l2_13_a_first_turn_that_takes_longer_is_on_disk_meanwhile() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let mut told = pin!(bench.chat(asked("hang", "x", json!({}))));
    let on_disk = eventually("the turn is on disk", async || {
        bench.store.unfinished_turns().await.unwrap() == 1
    });
    tokio::select! {
        told = &mut told => panic!("the model never answers: {}", told.text),
        () = on_disk => {}
    }
    assert_eq!(bench.sessions().await.len(), 1);
}

#[tokio::test]
async fn sbp_l2_14_a_first_turn_that_does_something_is_on_disk_before() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk(&upstream).await;
    let told = bench.chat(asked("remembers", "the cat is Ada", json!({}))).await;
    assert_eq!(told.status, 200, "{}", told.text);
    let log = bench.log(&Session::of(&told.body["sbp"])).await;
    assert_eq!(log.len(), 4, "asked, called, done, answered: {log:?}");
    disk.fail("accept", busy());
    let told = bench.chat(asked("remembers", "the cat is Ada", json!({}))).await;
    assert_eq!(told.status, 503, "what cannot be kept is not done: {}", told.text);
    assert_eq!(bench.sessions().await.len(), 1);
}
