//! SBP L2: suspended, resumed, queued and interrupted turns and sessions.

use std::sync::Arc;

use bowline_sbp::id::{AgentId, SessionId, TurnId};
use bowline_store::sqlite::Sqlite;
use bowline_store::{Error, NewSession, TokenHash};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use crate::bench::{Bench, Session, answer, turn};
use crate::disk::on_a_bad_disk_with;
use crate::upstream::{MockUpstream, Piece};
use crate::written::{begun, by_a_dead_process};

#[tokio::test]
async fn sbp_l2_10_detach_and_a_dropped_socket_both_suspend() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    bench.say(&session, "echo x").await;
    let (mut phone, _) = bench.attach(&session).await;
    phone.send(json!({ "type": "DETACH" })).await;
    assert_eq!(phone.closed().await, 1000);
    bench.until_status(&session, "suspended").await;
    let (phone, _) = bench.attach(&session).await;
    assert_eq!(bench.show(&session).await["status"], "running");
    drop(phone);
    bench.until_status(&session, "suspended").await;
    assert!(bench.show(&session).await["surface"].is_null());
}

#[tokio::test]
async fn sbp_l2_15_a_suspended_session_says_so_and_runs_nothing() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    bench.say(&session, "echo x").await;
    let (phone, _) = bench.attach(&session).await;
    drop(phone);
    bench.until_status(&session, "suspended").await;

    let call = |sbp: serde_json::Value| {
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "echo more" }],
                           "sbp": sbp });
        let request = bench.http.post(bench.url("/v1/chat/completions"));
        answer(request.header("X-Session-Token", &session.token).json(&body))
    };
    let waiting = call(json!({})).await;
    assert_eq!(waiting.status, 202);
    let sbp = &waiting.body["sbp"];
    assert_eq!((&sbp["resume_available"], &sbp["session_id"]), (&json!(true), &json!(session.id)));
    assert!(sbp["resume_prompt"].is_string() && sbp["last_checkpoint"].is_string());
    assert!(sbp["snapshot_id"].is_string() && sbp["step_count"] == 1);
    assert_eq!(bench.log(&session).await.len(), 2, "nothing was run or stored");

    let fresh = call(json!({ "force_new_session": true })).await;
    assert_eq!(fresh.status, 200);
    assert_ne!(fresh.body["sbp"]["session_id"], json!(session.id));

    let resumed = call(json!({ "session_id": session.id })).await;
    assert_eq!((resumed.status, resumed.content()), (200, "more"));
    assert_eq!(bench.show(&session).await["status"], "running");
}

#[tokio::test]
async fn sbp_l2_15_a_session_that_never_had_a_surface_is_never_suspended() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    for _ in 0..3 {
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "echo x" }] });
        let request = bench.http.post(bench.url("/v1/chat/completions"));
        let said = answer(request.header("X-Session-Token", &session.token).json(&body)).await;
        assert_eq!(said.status, 200);
    }
    assert_eq!(bench.show(&session).await["step_count"], 3);
}

#[tokio::test]
async fn sbp_l2_14_a_checkpoint_is_taken_every_so_many_turns() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let mut snapshots = Vec::new();
    for _ in 0..4 {
        let mut body = turn(&session, "m", "echo x");
        body["sbp"]["checkpoint_every"] = json!(2);
        let said = bench.post("/v1/chat/completions", body).await;
        snapshots.push(said.body["sbp"]["snapshot_id"].clone());
    }
    assert!(snapshots[0].is_null() && snapshots[1].is_string());
    assert_eq!(snapshots[1], snapshots[2]);
    assert_ne!(snapshots[2], snapshots[3]);
}

#[tokio::test]
async fn sbp_l2_18_turns_run_one_at_a_time_in_order_and_a_full_lane_refuses() {
    let upstream = MockUpstream::start().await;
    let bench = Arc::new(Bench::before(&upstream).await);
    let session = bench.session().await;
    let gate = upstream.gate();
    let ask = |model: &'static str, text: String| {
        let (bench, session) = (Arc::clone(&bench), session.clone());
        tokio::spawn(async move { bench.say_to(&session, model, &text).await })
    };
    let first = ask("gated", "first".into());
    gate.send(Piece::Text("slow".into())).unwrap();
    while upstream.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    let mut waiting = Vec::new();
    for n in 0..64 {
        waiting.push(ask("m", format!("waiting {n}")));
        // Arrival order is the order under test: each must have arrived before the next is sent.
        let arrived = async {
            while bench.store.entries_waiting().await < n + 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(crate::bench::DEADLINE, arrived).await.unwrap();
    }
    let refused = bench.say(&session, "one too many").await;
    assert_eq!((refused.status, refused.code()), (409, "SBP_SESSION_CONFLICT"));
    assert_eq!(upstream.calls().len(), 1, "the others wait");
    drop(gate);
    assert_eq!(first.await.unwrap().status, 200);
    for asked in waiting {
        assert_eq!(asked.await.unwrap().status, 200);
    }
    let log = bench.log(&session).await;
    let asked: Vec<_> =
        log.iter().filter(|(role, _)| role == "user").map(|(_, c)| c.clone()).collect();
    let expected: Vec<_> =
        std::iter::once("first".into()).chain((0..64).map(|n| format!("waiting {n}"))).collect();
    assert_eq!(asked, expected);
}

/// The number of accepted turns that have not ended.
trait Waiting {
    async fn entries_waiting(&self) -> usize;
}

impl Waiting for Sqlite {
    async fn entries_waiting(&self) -> usize {
        self.unfinished_turns().await.unwrap()
    }
}

/// The store of a killed gateway: a turn accepted, started `attempt` times, not ended.
async fn interrupted(attempts: u32) -> (Arc<Sqlite>, tempfile::TempDir, Session) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(folder.path()).unwrap());
    let id = SessionId(Uuid::now_v7());
    let new = NewSession {
        id,
        token_hash: TokenHash([1; 32]),
        listed: true,
        user: bowline_sbp::access::OWNER,
        agent_id: AgentId::fallback(),
        metadata: "{}".into(),
        at: Timestamp::now(),
    };
    let request = json!({
        "model": "m", "params": [["model", "m"]], "checkpoint_every": 1, "tether": true,
        "origin": "http", "messages": [{ "role": "user", "content": "echo picked up" }],
    });
    let turn_id = TurnId(Uuid::now_v7());
    let begun = begun(turn_id, &request, attempts);
    by_a_dead_process(&store, id, Some(new), |_| vec![begun]).await;
    (store, folder, Session { id: id.to_string(), token: String::new() })
}

#[tokio::test]
async fn sbp_l2_13_an_interrupted_turn_is_run_again_once() {
    let (store, folder, session) = interrupted(1).await;
    let bench = Bench::on(store, folder, |_| {}).await;
    assert_eq!(bench.gateway.recovered(), 1);
    bench.until_pending(&session, 1).await;
    let log = bench.log(&session).await;
    assert_eq!(
        log,
        [("user".into(), "echo picked up".into()), ("assistant".into(), "picked up".into())]
    );
}

#[tokio::test]
async fn g13_a_turn_that_is_interrupted_twice_is_recorded_not_run_for_ever() {
    let (store, folder, session) = interrupted(2).await;
    let bench = Bench::on(store, folder, |_| {}).await;
    bench.until_pending(&session, 1).await;
    let log = bench.log(&session).await;
    assert_eq!(log[0], ("user".into(), "echo picked up".into()), "the words are kept");
    assert!(log[1].1.contains("interrupted twice"), "{log:?}");
    assert_eq!(bench.say(&session, "echo go on").await.content(), "go on");
}

#[tokio::test]
async fn g13_a_turn_whose_model_nobody_serves_any_more_is_recorded_not_left_lying() {
    let upstream = MockUpstream::start().await;
    let (store, folder, session) = interrupted(1).await;
    let bench = Bench::on(store, folder, |config| {
        upstream.configure(config);
        config.upstream.get_mut("mock").unwrap().models = vec!["another".into()];
    })
    .await;
    bench.until_pending(&session, 1).await;
    let log = bench.log(&session).await;
    assert_eq!(log[0], ("user".into(), "echo picked up".into()), "the words are kept");
    assert!(log[1].1.contains("no upstream serves"), "{log:?}");
    assert_eq!(bench.store.entries_waiting().await, 0);
}

#[tokio::test]
async fn sbp_l3_14_a_turn_that_waited_is_not_run_in_a_session_that_ended_meanwhile() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let gate = upstream.gate();
    let first = bench.say_to(&session, "gated", "one");
    let second = async {
        upstream.until_calls(1).await;
        let waiting = bench.say(&session, "two");
        let end = async {
            while bench.store.entries_waiting().await < 2 {
                tokio::task::yield_now().await;
            }
            let path = format!("/v1/sessions/{}/status", session.id);
            let done = serde_json::json!({ "status": "completed" });
            bench.call(reqwest::Method::PATCH, &path, &[], &done).await;
            drop(gate);
        };
        tokio::join!(waiting, end).0
    };
    let (_, second) = tokio::join!(first, second);
    assert_eq!(second.refusal(), (409, "SBP_SESSION_CONFLICT"), "{}", second.text);
    assert_eq!(upstream.calls().len(), 1);
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
