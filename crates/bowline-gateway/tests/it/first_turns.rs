//! G4: the first turn of a new session, which nobody knows of before it is on disk.

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

/// Longer than any model here takes.
const LATER: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(1);
const AT_ONCE: Duration = Duration::ZERO;

async fn writing(upstream: &MockUpstream, behind: Duration) -> (Bench, Arc<Failing>) {
    on_a_bad_disk_with(upstream, |config| config.limits.write_behind = behind).await
}

fn first(stream: bool) -> Value {
    let mut body = asked("m", "x", json!({}));
    body["stream"] = stream.into();
    body
}

#[tokio::test]
async fn g4_a_first_turn_that_cannot_be_written_is_503_and_leaves_nothing() {
    let upstream = MockUpstream::start().await;
    let cases = [
        (AT_ONCE, "accept_turn", false),
        (AT_ONCE, "accept_turn", true),
        (AT_ONCE, "promise", false),
        (AT_ONCE, "promise", true),
        (LATER, "first_turn", false),
        (LATER, "promise", true),
    ];
    for (behind, operation, stream) in cases {
        let (bench, disk) = writing(&upstream, behind).await;
        disk.fail(operation, busy());
        let told = bench.chat(first(stream)).await;
        assert_eq!(told.status, 503, "{operation}: {}", told.text);
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
        (AT_ONCE, "promise", "m"),
        (LATER, "first_turn", "m"),
        // It does something before it is over.
        (LATER, "accept_turn", "remembers"),
    ];
    for (behind, operation, model) in cases {
        let (bench, disk) = on_a_bad_disk_with(&upstream, |config| {
            config.limits.write_behind = behind;
            config.memory.remember = Remember::Always;
        })
        .await;
        disk.fail(operation, Error::Fatal("a test says so".into()));
        let told = bench.chat(asked(model, "x", json!({}))).await;
        assert_eq!((told.status, told.code()), (500, "SBP_INTERNAL"), "{operation}: {}", told.text);
    }
}

#[tokio::test]
async fn g4_who_waits_hears_at_once_that_nothing_can_be_written_however_long_the_model_takes() {
    let upstream = MockUpstream::start().await;
    for behind in [AT_ONCE, SOON] {
        let (bench, disk) = writing(&upstream, behind).await;
        disk.fail("promise", busy());
        let told = bench.chat(asked("hang", "x", json!({}))).await;
        assert_eq!(told.status, 503, "{}", told.text);
        eventually("nothing at work", async || bench.gateway.at_work().turns == 0).await;
    }
}

#[tokio::test]
async fn g4_a_first_turn_that_is_being_written_when_its_moment_ends_is_written_once() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = writing(&upstream, Duration::from_millis(300)).await;
    let go = disk.hold("first_turn");
    let let_go = async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        // On a very slow machine the moment was over before, and nothing is held.
        let _ = go.send(());
    };
    let (told, ()) = tokio::join!(bench.chat(first(false)), let_go);
    assert_eq!(told.status, 200, "{}", told.text);
    assert_eq!(bench.log(&Session::of(&told.body["sbp"])).await.len(), 2);
    assert_eq!(bench.sessions().await.len(), 1);
    assert_eq!(bench.store.unfinished_turns().await.unwrap(), 0);
}

#[tokio::test]
async fn g16_a_stop_has_a_first_turn_written_down_whatever_its_moment() {
    let upstream = MockUpstream::start().await;
    let (bench, _) = on_a_bad_disk_with(&upstream, |config| {
        config.limits.write_behind = LATER;
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
async fn g4_the_model_is_asked_while_a_first_turn_is_written_and_nobody_is_told_before() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = writing(&upstream, AT_ONCE).await;
    for (n, stream) in [false, true].into_iter().enumerate() {
        let on_disk = disk.slow_down();
        let mut told = pin!(bench.chat(first(stream)));
        tokio::select! {
            biased;
            told = &mut told => panic!("told too soon: {}", told.text),
            () = upstream.until_calls(n + 1) => {}
        }
        // The answer has long been there; that it was written does not matter either.
        tokio::select! {
            biased;
            told = &mut told => panic!("told too soon: {}", told.text),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
        on_disk.send(()).unwrap();
        assert_eq!(told.await.status, 200);
    }
}

#[tokio::test]
async fn g4_a_refused_turn_leaves_nothing_even_if_the_store_was_busy() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = writing(&upstream, AT_ONCE).await;
    disk.fail("abandon_turn", busy());
    let told = bench.chat(asked("status-400", "x", json!({}))).await;
    assert_eq!(told.status, 503, "what became of it was unknown: {}", told.text);
    eventually("gone", async || bench.sessions().await.is_empty()).await;
    assert_eq!(bench.store.unfinished_turns().await.unwrap(), 0);
}

#[tokio::test]
async fn g4_a_first_turn_that_is_over_at_once_is_written_whole_or_not_at_all() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = writing(&upstream, LATER).await;
    // Neither is asked for: the turn is one write, and one that is refused is none.
    for unused in ["accept_turn", "abandon_turn"] {
        disk.fail(unused, busy());
        assert_eq!(bench.chat(asked("status-400", "x", json!({}))).await.status, 422);
        assert_eq!(bench.sessions().await.len(), 0);
    }
    disk.fail("accept_turn", busy());
    let told = bench.chat(first(false)).await;
    assert!(told.status == 200 && !disk.has_failed(), "{}", told.text);
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
    let (bench, disk) = on_a_bad_disk_with(&upstream, |config| {
        config.limits.write_behind = LATER;
        config.memory.remember = Remember::Always;
    })
    .await;
    disk.fail("first_turn", busy());
    let told = bench.chat(asked("remembers", "the cat is Ada", json!({}))).await;
    assert!(told.status == 200 && !disk.has_failed(), "{}", told.text);
    let log = bench.log(&Session::of(&told.body["sbp"])).await;
    assert_eq!(log.len(), 4, "asked, called, done, answered: {log:?}");
    disk.fail("accept_turn", busy());
    let told = bench.chat(asked("remembers", "the cat is Ada", json!({}))).await;
    assert_eq!(told.status, 503, "what cannot be kept is not done: {}", told.text);
    assert_eq!(bench.sessions().await.len(), 1);
}
