//! SBP L1: create, read, cancel, end and delete sessions.

use bowline_gateway::auth::hash_token;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench, Session, asked, plain};
use crate::upstream::MockUpstream;

const OWN_TOKEN: &str = "0123456789-my-own-token-32-chars";

pub(crate) fn names(object: &Value) -> Vec<&str> {
    let mut names: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

pub(crate) fn is_time(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<Timestamp>().is_ok())
}

pub(crate) async fn patch(bench: &Bench, session: &Session, status: &str) -> Answer {
    let path = format!("/v1/sessions/{}/status", session.id);
    bench.call(Method::PATCH, &path, &[], &json!({ "status": status })).await
}

#[tokio::test]
async fn sbp_l1_01_a_new_session_is_idle_and_says_who_it_is() {
    let bench = Bench::start().await;
    let empty = bench.call(Method::POST, "/v1/sessions", &[], &Value::Null).await;
    let made = bench.post("/v1/sessions", json!({ "agent_id": "writer", "future": [1] })).await;
    for (made, agent) in [(&empty, "default"), (&made, "writer")] {
        assert_eq!(made.status, 201, "{}", made.text);
        let fields =
            ["agent_id", "created_at", "session_id", "session_token", "status", "step_count"];
        assert_eq!(names(&made.body), fields);
        assert!(made.body["session_id"].as_str().unwrap().parse::<uuid::Uuid>().is_ok());
        assert!(made.body["session_token"].as_str().unwrap().len() >= 32);
        assert_eq!(made.body["agent_id"], agent);
        assert_eq!((&made.body["status"], &made.body["step_count"]), (&json!("idle"), &json!(0)));
        assert!(is_time(&made.body["created_at"]));
    }
    assert_ne!(empty.body["session_token"], made.body["session_token"]);
}

#[tokio::test]
async fn sbp_l1_01_the_callers_own_token_opens_its_session() {
    let bench = Bench::start().await;
    assert_eq!(OWN_TOKEN.len(), 32);
    let made = bench.post("/v1/sessions", json!({ "session_token": OWN_TOKEN })).await;
    assert_eq!((made.status, made.body["session_token"].as_str()), (201, Some(OWN_TOKEN)));
    let said = bench.chat_as(&[("X-Session-Token", OWN_TOKEN)], plain("m", "echo mine")).await;
    assert_eq!((said.status, said.content()), (200, "mine"));
    assert_eq!(said.body["sbp"]["session_id"], made.body["session_id"]);
    assert_eq!(said.header("x-session-token"), OWN_TOKEN);
    let (_phone, welcome) = bench.attach(&Session::of(&made.body)).await;
    assert_eq!(welcome["session_id"], made.body["session_id"]);

    let again = bench.post("/v1/sessions", json!({ "session_token": OWN_TOKEN })).await;
    assert_eq!(again.refusal(), (409, "SBP_SESSION_CONFLICT"), "a token opens one session");
}

#[tokio::test]
async fn sbp_l1_01_what_cannot_be_a_session_is_refused_and_named() {
    let bench = Bench::start().await;
    // `{"k":""}` are eight bytes: the rest is up to the text.
    let metadata = |size: usize| json!({ "k": "x".repeat(size - 8) });
    for (body, param) in [
        (json!({ "session_token": &OWN_TOKEN[1..] }), json!("session_token")),
        (json!({ "session_token": "a token with spaces, long enough" }), json!("session_token")),
        (json!({ "session_token": "x".repeat(513) }), json!("session_token")),
        (json!({ "session_token": 5 }), Value::Null),
        (json!({ "agent_id": "" }), json!("agent_id")),
        (json!({ "agent_id": "a\u{7}" }), json!("agent_id")),
        (json!({ "agent_id": "a".repeat(129) }), json!("agent_id")),
        (json!({ "metadata": metadata((16 << 10) + 1) }), json!("metadata")),
        (json!({ "metadata": "text" }), Value::Null),
        (json!([]), Value::Null),
    ] {
        let refused = bench.post("/v1/sessions", body.clone()).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"), "{body}");
        assert_eq!(refused.body["error"]["param"], param, "{body}");
    }
    assert_eq!(bench.sessions().await, [] as [Value; 0]);
    let largest = json!({ "metadata": metadata(16 << 10), "agent_id": "a".repeat(128) });
    assert_eq!(bench.post("/v1/sessions", largest).await.status, 201);
}

#[tokio::test]
async fn sbp_l1_01_metadata_is_kept_as_it_was() {
    let bench = Bench::start().await;
    let metadata = json!({ "z": 1, "a": { "deep": [null, true, "é"] }, "n": -0.5 });
    let made = bench.post("/v1/sessions", json!({ "metadata": metadata })).await;
    let session = Session::of(&made.body);
    bench.say(&session, "echo x").await;
    assert_eq!(bench.show(&session).await["metadata"].to_string(), metadata.to_string());
}

#[tokio::test]
async fn sbp_l1_01_tokens_are_on_disk_only_as_hashes() {
    let bench = Bench::start().await;
    let body = json!({ "session_token": OWN_TOKEN, "agent_id": "the-agent-of-this-test" });
    let own = Session::of(&bench.post("/v1/sessions", body).await.body);
    let made = bench.session().await;
    let chat = bench.chat(asked("m", "echo x", json!({ "client_turn_id": "keyed" }))).await;
    let chat = Session::of(&chat.body["sbp"]);
    let key = [("Idempotency-Key", "a-key"), ("X-Session-Token", own.token.as_str())];
    assert_eq!(bench.chat_as(&key, plain("m", "echo x")).await.status, 200);
    let (_phone, _) = bench.attach(&made).await;

    let mut disk = Vec::new();
    for file in std::fs::read_dir(bench.folder.path()).unwrap() {
        disk.extend(std::fs::read(file.unwrap().path()).unwrap());
    }
    let holds = |bytes: &[u8]| disk.windows(bytes.len()).any(|window| window == bytes);
    assert!(holds(b"the-agent-of-this-test"), "what was stored can be found at all");
    for session in [own, made, chat] {
        assert!(holds(&hash_token(&session.token).0));
        assert!(!holds(session.token.as_bytes()));
    }
}

#[tokio::test]
async fn sbp_l1_03_a_session_shows_where_it_stands() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let fresh = bench.show(&session).await;
    bench.say(&session, "echo x").await;
    let (_phone, _) = bench.attach_as(&session, json!({ "device_type": "mobile" })).await;
    let seen = bench.show(&session).await;
    let fields = [
        "agent_id",
        "approvals_pending",
        "attached",
        "cost_usd",
        "created_at",
        "message_count",
        "metadata",
        "session_id",
        "status",
        "step_count",
        "surface",
        "tether_turns_pending",
        "title",
        "turn_running",
        "updated_at",
    ];
    for (view, status, steps, messages) in [(&fresh, "idle", 0, 0), (&seen, "running", 1, 2)] {
        assert_eq!(names(view), fields);
        assert_eq!((&view["session_id"], &view["status"]), (&json!(session.id), &json!(status)));
        assert_eq!(view["agent_id"], "default");
        assert_eq!(
            (&view["step_count"], &view["message_count"]),
            (&json!(steps), &json!(messages))
        );
        assert!(is_time(&view["created_at"]) && is_time(&view["updated_at"]));
    }
    assert_eq!((&fresh["surface"], &fresh["tether_turns_pending"]), (&Value::Null, &json!(0)));
    assert_eq!(seen["surface"]["device_type"], "mobile");
    assert_eq!(seen["created_at"], fresh["created_at"]);
}

#[tokio::test]
async fn sessions_have_the_same_face_under_their_second_name() {
    let bench = Bench::start().await;
    let made = bench.post("/v1/sbp/sessions", json!({ "agent_id": "roamer" })).await;
    assert_eq!(made.status, 201);
    let session = Session::of(&made.body);
    bench.say(&session, "echo x").await;
    for path in ["", "/SESSION", "/SESSION/messages"] {
        let path = path.replace("SESSION", &session.id);
        let one = bench.get(&format!("/v1/sessions{path}")).await;
        let other = bench.get(&format!("/v1/sbp/sessions{path}")).await;
        assert_eq!((one.status, &one.body), (200, &other.body), "{path}");
    }
    let base = format!("/v1/sbp/sessions/{}", session.id);
    let cancelled = bench.post(&format!("{base}/cancel"), Value::Null).await;
    assert_eq!((cancelled.status, &cancelled.body["cancelled"]), (200, &json!(false)));
    let done = json!({ "status": "completed" });
    let done = bench.call(Method::PATCH, &format!("{base}/status"), &[], &done).await;
    assert_eq!((done.status, &done.body["status"]), (200, &json!("completed")));
    assert_eq!(bench.call(Method::DELETE, &base, &[], &Value::Null).await.status, 204);
    assert_eq!(bench.get(&base).await.refusal(), (404, "SBP_SESSION_NOT_FOUND"));
}

#[tokio::test]
async fn sbp_l2_13_the_owner_moves_a_session_only_as_the_lifecycle_allows() {
    let bench = Bench::start().await;
    for (steps, status) in [
        (&["suspended"][..], 200),
        (&["suspended", "running"], 200),
        (&["suspended", "running", "completed"], 200),
        (&["suspended", "failed"], 200),
        (&["completed", "completed"], 200),
        (&["completed", "running"], 409),
        (&["completed", "failed"], 409),
        (&["failed", "completed"], 409),
        (&["failed", "suspended"], 409),
        (&["idle"], 422),
        (&["active"], 422),
    ] {
        let session = bench.session().await;
        bench.say(&session, "echo x").await;
        let (last, before) = steps.split_last().unwrap();
        for step in before {
            assert_eq!(patch(&bench, &session, step).await.status, 200, "{steps:?}");
        }
        let seen = bench.show(&session).await["status"].clone();
        let moved = patch(&bench, &session, last).await;
        assert_eq!(moved.status, status, "{steps:?}: {}", moved.text);
        let expected = if status == 200 { json!(last) } else { seen };
        assert_eq!(bench.show(&session).await["status"], expected, "{steps:?}");
    }
}

#[tokio::test]
async fn sbp_l3_14_an_ended_session_takes_no_more_turns() {
    let bench = Bench::start().await;
    for end in ["completed", "failed"] {
        let session = bench.session().await;
        bench.say(&session, "echo x").await;
        patch(&bench, &session, end).await;
        let token = [("X-Session-Token", session.token.as_str())];
        let named = bench.say(&session, "echo more").await;
        let by_token = bench.chat_as(&token, plain("m", "echo more")).await;
        for refused in [named, by_token] {
            assert_eq!(refused.refusal(), (409, "SBP_SESSION_CONFLICT"), "{end}");
            assert!(refused.body["error"]["message"].as_str().unwrap().contains(end));
        }
        assert_eq!(bench.log(&session).await.len(), 2, "nothing was stored");
        assert_eq!(bench.show(&session).await["status"], end);
    }
}

#[tokio::test]
async fn a_deleted_session_leaves_nothing_behind() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    bench.say(&session, "echo the words of the deleted session").await;
    let path = format!("/v1/sessions/{}", session.id);
    assert_eq!(bench.call(Method::DELETE, &path, &[], &Value::Null).await.status, 204);
    for gone in [
        bench.get(&path).await,
        bench.get(&format!("{path}/messages")).await,
        bench.call(Method::DELETE, &path, &[], &Value::Null).await,
        patch(&bench, &session, "completed").await,
        bench.say(&session, "echo x").await,
    ] {
        assert_eq!(gone.refusal(), (404, "SBP_SESSION_NOT_FOUND"));
    }
    let token = [("X-Session-Token", session.token.as_str())];
    let refused = bench.chat_as(&token, plain("m", "echo x")).await;
    assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"), "its token opens nothing");
    assert_eq!(bench.sessions().await, [] as [Value; 0]);
}

#[tokio::test]
async fn a_caller_whose_session_is_deleted_under_it_is_told_so() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let _gate = upstream.gate();
    let delete = async {
        upstream.until_calls(1).await;
        let path = format!("/v1/sessions/{}", session.id);
        bench.call(Method::DELETE, &path, &[], &Value::Null).await
    };
    let (said, deleted) = tokio::join!(bench.say_to(&session, "gated", "go"), delete);
    assert_eq!(deleted.status, 204);
    assert_eq!(said.refusal(), (404, "SBP_SESSION_NOT_FOUND"), "{}", said.text);
}
