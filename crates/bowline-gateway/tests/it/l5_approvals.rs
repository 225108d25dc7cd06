//! Tools that need an approval, denied tools, and devices that reconnect during a call.

use std::time::Duration;

use bowline_gateway::config::{Config, Policy, Timeout};
use bowline_sbp::approval::ApprovalState;
use serde_json::{Value, json};

use crate::bench::{Bench, Phone, Session, eventually, turn};
use crate::upstream::MockUpstream;

const CAMERA: &str = "call surface tool camera with {\"mode\":\"photo\"}";

fn asks(config: &mut Config) {
    config.tools.policy.insert("camera".into(), Policy::Ask);
}

async fn phone_of(bench: &Bench, session: &Session) -> (Phone, Value) {
    bench.attach_as(&session.as_owner(), json!({ "mcp_tools": ["camera", "gps"] })).await
}

async fn frame(phone: &mut Phone, kind: &str) -> Value {
    phone.until(kind).await.pop().unwrap()
}

async fn answer(phone: &mut Phone, result: &str) {
    let call = frame(phone, "TOOL_CALL").await;
    let result = json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": result });
    phone.send(result).await;
}

fn path(session: &Session, approval: &Value) -> String {
    let id = approval["approval_id"].as_str().unwrap();
    format!("/v1/sessions/{}/approvals/{id}", session.id)
}

#[tokio::test]
async fn sbp_l5_01_a_tool_that_asks_waits_for_a_yes_from_anywhere() {
    let bench = Bench::with(asks).await;
    let session = bench.session().await;
    let (mut phone, _) = phone_of(&bench, &session).await;
    let device = async {
        let asked = frame(&mut phone, "APPROVAL_REQUEST").await;
        assert_eq!((&asked["tool_name"], &asked["state"]), (&json!("camera"), &json!("pending")));
        assert_eq!(asked["tool_input"], json!({ "mode": "photo" }));
        let listed = bench.get(&format!("/v1/sessions/{}/approvals", session.id)).await;
        assert_eq!(listed.body["approvals"][0]["approval_id"], asked["approval_id"]);
        let decided =
            bench.post_as_owner(&path(&session, &asked), json!({ "approved": true })).await;
        assert_eq!(decided.status, 200, "{}", decided.text);
        // Both come, in no order.
        let mut told = [phone.next().await, phone.next().await];
        told.sort_by_key(|frame| frame["type"].to_string());
        let [resolved, call] = told;
        assert_eq!(resolved["type"], "APPROVAL_RESOLVED");
        assert_eq!(resolved["approval_id"], asked["approval_id"]);
        assert_eq!(resolved["state"], "used");
        let result =
            json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": "a cat" });
        phone.send(result).await;
        (phone, asked)
    };
    let (said, (_phone, asked)) = tokio::join!(bench.say(&session, CAMERA), device);
    assert_eq!(said.content(), "The tool answered: a cat");
    let again = bench.post_as_owner(&path(&session, &asked), json!({ "approved": false })).await;
    assert_eq!(again.refusal(), (409, "SBP_SESSION_CONFLICT"), "the first verdict counts");
    let other = bench.session().await;
    let strange = bench.post_as_owner(&path(&other, &asked), json!({ "approved": true })).await;
    assert_eq!(strange.status, 404);
}

#[tokio::test]
async fn sbp_l5_01_a_no_by_the_device_is_a_result_and_nothing_is_called() {
    let bench = Bench::with(asks).await;
    let session = bench.session().await;
    let (mut phone, _) = phone_of(&bench, &session).await;
    let device = async {
        let asked = frame(&mut phone, "APPROVAL_REQUEST").await;
        let id = &asked["approval_id"];
        phone
            .send(json!({ "type": "APPROVAL_DECISION", "approval_id": id, "approved": "yes" }))
            .await;
        frame(&mut phone, "PROTOCOL_ERROR").await;
        phone
            .send(json!({ "type": "APPROVAL_DECISION", "approval_id": id, "approved": false }))
            .await;
        let seen = phone.until("TURN_COMPLETE").await;
        assert!(!seen.iter().any(|frame| frame["type"] == "TOOL_CALL"), "{seen:?}");
    };
    let (said, ()) = tokio::join!(bench.say(&session, CAMERA), device);
    assert!(said.content().contains("does not allow"), "{}", said.content());
}

#[tokio::test]
async fn sbp_l5_01_silence_is_a_no() {
    let bench = Bench::with(|config| {
        asks(config);
        config.tools.approval_timeout = Duration::from_millis(50);
    })
    .await;
    let session = bench.session().await;
    let (mut phone, _) = phone_of(&bench, &session).await;
    let said = bench.say(&session, CAMERA).await;
    assert!(said.content().contains("nobody agreed"), "{}", said.content());
    let resolved = frame(&mut phone, "APPROVAL_RESOLVED").await;
    assert_eq!(resolved["state"], "expired");
    let late = bench.post_as_owner(&path(&session, &resolved), json!({ "approved": true })).await;
    assert_eq!(late.status, 409);
}

#[tokio::test]
async fn sbp_l5_01_a_cancelled_turn_asks_no_more() {
    let bench = Bench::with(asks).await;
    let session = bench.session().await;
    let (mut phone, _) = phone_of(&bench, &session).await;
    let device = async {
        frame(&mut phone, "APPROVAL_REQUEST").await;
        phone.send(json!({ "type": "CANCEL_TURN" })).await;
        assert_eq!(frame(&mut phone, "APPROVAL_RESOLVED").await["state"], "denied");
    };
    let (said, ()) = tokio::join!(bench.say(&session, CAMERA), device);
    assert_eq!(said.body["sbp"]["turn_status"], "cancelled", "{}", said.text);
}

#[tokio::test]
async fn sbp_l5_01_what_is_denied_is_not_even_offered() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.tools.policy.insert("cam*".into(), Policy::Deny);
    })
    .await;
    let session = bench.session().await;
    let (_phone, welcome) = phone_of(&bench, &session).await;
    assert_eq!(welcome["mcp_tools_registered"], json!(["gps"]));
    bench.say(&session, "hi").await;
    assert!(!upstream.calls()[0].body["tools"].to_string().contains("camera"));
}

/// The gateway stops while an approval is pending; the next one asks again with the same approval
/// id, and an approval given in between counts.
#[tokio::test]
async fn sbp_l2_14_a_question_outlives_restarts_and_the_call_is_made_once() {
    let mut bench = Bench::with(asks).await;
    let session = bench.session().await;
    let (mut phone, _) = phone_of(&bench, &session).await;
    let message = json!({ "type": "USER_MESSAGE", "content": CAMERA, "client_turn_id": "c" });
    phone.send(message).await;
    let asked = frame(&mut phone, "APPROVAL_REQUEST").await;
    // More often than a turn is tried that brings the gateway down.
    for _ in 0..3 {
        bench = bench.reopened_with(asks).await;
        let (mut phone, _) = phone_of(&bench, &session).await;
        let again = frame(&mut phone, "APPROVAL_REQUEST").await;
        assert_eq!(again["approval_id"], asked["approval_id"]);
    }
    bench = bench.reopened_with(asks).await;
    let decided = bench.post_as_owner(&path(&session, &asked), json!({ "approved": true })).await;
    assert_eq!(decided.status, 200, "{}", decided.text);
    // The device comes after the yes, and in time.
    let (mut phone, _) = phone_of(&bench, &session).await;
    answer(&mut phone, "a dog").await;
    let seen = phone.until("TURN_COMPLETE").await;
    assert!(seen.iter().all(|frame| frame["type"] != "TOOL_CALL"), "once: {seen:?}");
    let log = bench.log(&session).await;
    assert_eq!(log.last().unwrap().1, "The tool answered: a dog");
}

/// The gateway was killed after the device was called: whether the tool ran is unknown.
#[tokio::test]
async fn sbp_l2_14_a_call_that_was_on_its_way_is_lost_unless_it_may_be_made_again() {
    for again in [false, true] {
        let config = move |config: &mut Config| {
            asks(config);
            config.tools.idempotent = if again { vec!["cam*".into()] } else { Vec::new() };
            // A stop in good order waits for nobody here.
            config.limits.drain = Duration::from_millis(100);
        };
        let bench = Bench::with(config).await;
        let session = bench.session().await;
        let (mut phone, _) = phone_of(&bench, &session).await;
        let message = json!({ "type": "USER_MESSAGE", "content": CAMERA, "client_turn_id": "c" });
        phone.send(message).await;
        let asked = frame(&mut phone, "APPROVAL_REQUEST").await;
        let yes = json!({ "type": "APPROVAL_DECISION", "approval_id": asked["approval_id"],
                          "approved": true });
        phone.send(yes).await;
        frame(&mut phone, "TOOL_CALL").await;
        // What a crash in this moment leaves on disk.
        let folder = tempfile::tempdir().unwrap();
        copy(bench.folder.path(), folder.path());
        let left = std::sync::Arc::new(bowline_store::sqlite::Sqlite::open(folder.path()).unwrap());
        let bench = Bench::on(left, folder, config).await;
        let (mut phone, _) = phone_of(&bench, &session).await;
        if again {
            answer(&mut phone, "a second cat").await;
        }
        // It may have ended before the phone came back.
        bench.until(&session, "answered", |seen| seen["step_count"] == 1).await;
        let said = bench.log(&session).await.pop().unwrap().1;
        assert!(said.contains(if again { "a second cat" } else { "was interrupted" }), "{said}");
        let state = bench.get(&format!("/v1/sessions/{}/approvals", session.id)).await;
        assert_eq!(state.body["approvals"][0]["state"], ApprovalState::Used.as_str());
    }
}

/// Copies the files as they are now; a partly written log is read up to its last complete record.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    for name in ["bowline.db", "bowline.db-wal"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

#[tokio::test]
async fn sbp_l5_03_a_device_that_comes_back_in_time_gets_the_same_call_again() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.tools.wait_for_surface = Duration::from_secs(20);
        config.tools.timeouts.insert("gps".into(), Timeout(Duration::from_secs(3)));
    })
    .await;
    let session = bench.session().await;
    let (mut phone, _) = phone_of(&bench, &session).await;
    let asked = |tool: &str| turn(&session, "calls", &json!([[tool, "{}"]]).to_string());
    let device = async {
        let first = frame(&mut phone, "TOOL_CALL").await;
        drop(phone);
        // One without the tool is not asked.
        let (desk, _) = bench.attach_as(&session.as_owner(), json!({})).await;
        drop(desk);
        let (mut phone, _) = phone_of(&bench, &session).await;
        let second = frame(&mut phone, "TOOL_CALL").await;
        assert_eq!(second["call_id"], first["call_id"]);
        phone
            .send(json!({ "type": "TOOL_RESULT", "call_id": second["call_id"], "result": "here" }))
            .await;
        phone
    };
    let (said, mut phone) = tokio::join!(bench.chat(asked("surface_camera")), device);
    assert_eq!(said.content(), "here");
    // It is never waited for beyond the call's own deadline.
    let device = async {
        frame(&mut phone, "TOOL_CALL").await;
        drop(phone);
    };
    let (said, ()) = tokio::join!(bench.chat(asked("surface_gps")), device);
    assert!(said.content().contains("disconnected before it answered"), "{}", said.content());
}

#[tokio::test]
async fn sbp_l5_02_each_result_is_on_record_when_it_is_there() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut phone, _) = phone_of(&bench, &session).await;
    let calls = json!([["surface_camera", "{}"], ["surface_gps", "{}"]]).to_string();
    let device = async {
        let first = frame(&mut phone, "TOOL_CALL").await;
        let second = frame(&mut phone, "TOOL_CALL").await;
        let result = json!({ "type": "TOOL_RESULT", "call_id": second["call_id"], "result": "b" });
        phone.send(result).await;
        // What is done is not done again after a crash, though others are not done yet.
        let recorded = async || bench.entries(&session).await.len() == 3;
        eventually("recorded", recorded).await;
        let result = json!({ "type": "TOOL_RESULT", "call_id": first["call_id"], "result": "a" });
        phone.send(result).await;
        phone
    };
    let (said, _phone) = tokio::join!(bench.chat(turn(&session, "calls", &calls)), device);
    assert_eq!(said.content(), "a | b", "the model sees them in the order of its calls");
}

#[tokio::test]
async fn the_loop_ends_at_its_rounds_and_at_its_price() {
    for limit in ["rounds", "price"] {
        let upstream = MockUpstream::start().await;
        let bench = Bench::before_with(&upstream, |config| {
            match limit {
                "rounds" => config.tools.max_rounds = 2,
                _ => config.tools.max_cost_usd = 0.000_001,
            }
            let price = bowline_gateway::config::Price { input: 1000.0, output: 1000.0 };
            config.prices.insert("*".into(), price);
        })
        .await;
        let session = bench.session().await;
        let (mut phone, _) = phone_of(&bench, &session).await;
        let device = async {
            loop {
                answer(&mut phone, "more").await;
            }
        };
        let asked = turn(&session, "calls-for-ever", "go");
        let said = tokio::select! {
            said = bench.chat(asked) => said,
            () = device => unreachable!("it goes on for ever"),
        };
        let rounds = upstream.calls().len();
        assert_eq!(rounds, if limit == "rounds" { 3 } else { 2 }, "{}", said.text);
        assert_eq!(said.content(), "enough");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l5_01_of_two_verdicts_of_one_surface_the_first_counts() {
    let bench = Bench::with(asks).await;
    let session = bench.session().await;
    let (mut phone, _) = phone_of(&bench, &session).await;
    for _ in 0..20 {
        let device = async {
            let asked = frame(&mut phone, "APPROVAL_REQUEST").await;
            for approved in [false, true] {
                let id = &asked["approval_id"];
                let verdict =
                    json!({ "type": "APPROVAL_DECISION", "approval_id": id, "approved": approved });
                phone.send(verdict).await;
            }
            frame(&mut phone, "APPROVAL_RESOLVED").await
        };
        let (said, resolved) = tokio::join!(bench.say(&session, CAMERA), device);
        assert_eq!(resolved["state"], "denied", "{}", said.content());
    }
}
