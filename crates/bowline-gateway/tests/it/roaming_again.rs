//! G3 for roaming: a repeated request with the same idempotency key gets the same session.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench};
use crate::roaming::{IMPORT, STRANGER, of, sealed, text};

const KEY: [(&str, &str); 1] = [("Idempotency-Key", "the-key")];

/// A request, and the same request with another body.
struct Asked {
    path: String,
    body: Value,
    other: Value,
}

impl Asked {
    /// One request of each kind.
    async fn all(bench: &Bench) -> Vec<Self> {
        let session = bench.session_with(2).await;
        let token = bench.token_of(&session).await;
        let by_token = json!({ "roaming_token": token });
        let bundle: Value = serde_json::from_str(&sealed(STRANGER)).unwrap();
        let to = |agent: &str| json!({ "to_agent_id": agent });
        let import = || IMPORT.to_owned();
        vec![
            Self {
                path: import(),
                other: json!({ "roaming_token": token, "target_agent_id": "x" }),
                body: by_token,
            },
            Self {
                path: import(),
                other: json!({ "bundle": bundle, "target_agent_id": "x" }),
                body: json!({ "bundle": bundle }),
            },
            Self {
                path: of(&session, "fork"),
                body: json!({ "label": "f" }),
                other: json!({ "label": "g" }),
            },
            Self { path: of(&session, "handoff"), body: to("cook"), other: to("waiter") },
        ]
    }

    async fn ask(&self, bench: &Bench, key: &str) -> Answer {
        let headers = [("Idempotency-Key", key)];
        bench.call(Method::POST, &self.path, &headers, &self.body).await
    }
}

#[tokio::test]
async fn g3_an_import_fork_or_handoff_under_a_key_is_made_once() {
    let mut bench = Bench::start().await;
    let all = Asked::all(&bench).await;
    let mut first = Vec::new();
    for (n, asked) in all.iter().enumerate() {
        let answer = asked.ask(&bench, &n.to_string()).await;
        assert_eq!(answer.status, 201, "{}: {}", asked.path, answer.text);
        // What was made goes on meanwhile; the answer is about its beginning.
        let made = answer.body.get("session_id").unwrap_or(&answer.body["fork_session_id"]);
        let session = crate::bench::Session { id: text(made), token: String::new() };
        assert_eq!(bench.say(&session, "echo on").await.content(), "on");
        first.push(answer);
    }
    let sessions = bench.sessions().await.len();
    assert_eq!(sessions, 5);
    for restarted in [false, true] {
        if restarted {
            bench = bench.reopened().await;
        }
        for (n, (asked, first)) in all.iter().zip(&first).enumerate() {
            for _ in 0..2 {
                let again = asked.ask(&bench, &n.to_string()).await;
                assert_eq!((again.status, &again.text), (201, &first.text), "{}", asked.path);
            }
            let key = n.to_string();
            let headers = [("Idempotency-Key", key.as_str())];
            let other = bench.call(Method::POST, &asked.path, &headers, &asked.other).await;
            assert_eq!(other.refusal(), (409, "SBP_SESSION_CONFLICT"), "{}", asked.path);
        }
        assert_eq!(bench.sessions().await.len(), sessions);
    }
}

#[tokio::test]
async fn g3_a_key_of_a_fork_is_not_one_of_a_handoff_or_a_turn() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let call =
        async |path: &str, body: &Value| bench.call(Method::POST, path, &KEY, body).await.status;
    let turn = crate::bench::turn(&session, "m", "echo 2");
    assert_eq!(call("/v1/chat/completions", &turn).await, 200);
    assert_eq!(call(&of(&session, "fork"), &json!({})).await, 201);
    assert_eq!(call(&of(&session, "handoff"), &json!({ "to_agent_id": "a" })).await, 201);
    // Whoever makes sessions has one name for each.
    assert_eq!(call("/v1/sessions", &json!({})).await, 201);
    let bundle: Value = serde_json::from_str(&sealed(STRANGER)).unwrap();
    assert_eq!(call(IMPORT, &json!({ "bundle": bundle })).await, 409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g3_at_once_under_the_same_key_all_get_the_same_session() {
    let bench = Bench::start().await;
    for asked in Asked::all(&bench).await {
        let before = bench.sessions().await.len();
        let asking = (0..8).map(|_| asked.ask(&bench, "the-key"));
        let answers = futures_util::future::join_all(asking).await;
        let texts: HashSet<_> =
            answers.iter().map(|answer| (answer.status, &answer.text)).collect();
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert_eq!(answers[0].status, 201, "{}", answers[0].text);
        assert_eq!(bench.sessions().await.len(), before + 1);
        // The next kind takes the key anew: they have names of their own.
        if asked.path == IMPORT {
            let path = format!("/v1/sessions/{}", text(&answers[0].body["session_id"]));
            bench.call(Method::DELETE, &path, &[], &Value::Null).await;
        }
    }
}

#[tokio::test]
async fn g3_a_refused_import_leaves_its_key_free() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let token = bench.token_of(&session).await;
    let wrong = json!({ "roaming_token": format!("{token}x") });
    assert_eq!(bench.call(Method::POST, IMPORT, &KEY, &wrong).await.status, 422);
    let right = json!({ "roaming_token": token });
    assert_eq!(bench.call(Method::POST, IMPORT, &KEY, &right).await.status, 201);
    let far = json!({ "at_step": 9 });
    assert_eq!(bench.call(Method::POST, &of(&session, "fork"), &KEY, &far).await.status, 422);
    assert_eq!(bench.call(Method::POST, &of(&session, "fork"), &KEY, &json!({})).await.status, 201);
}

#[tokio::test]
async fn g3_a_retry_of_an_import_is_answered_though_its_token_has_expired_or_its_origin_is_gone() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let token = bench.token_of(&session).await;
    let body = json!({ "roaming_token": token });
    let first = bench.call(Method::POST, IMPORT, &KEY, &body).await;
    assert_eq!(first.status, 201);
    let gone = format!("/v1/sessions/{}", session.id);
    assert_eq!(bench.call(Method::DELETE, &gone, &[], &Value::Null).await.status, 204);
    let again = bench.call(Method::POST, IMPORT, &KEY, &body).await;
    let ids = |answer: &Answer| text(&answer.body["session_id"]);
    assert_eq!((again.status, ids(&again)), (201, ids(&first)), "{}", again.text);
}
