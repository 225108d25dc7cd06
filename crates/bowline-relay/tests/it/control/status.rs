//! Whether daemons are online is the relay's to say.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use bowline_sbrp::token::{Admission, KeySet, Relay};
use serde_json::{Value, json};

use crate::control::bench::{Bench, ISSUER, now};

/// What the relay answers, by daemon.
#[derive(Clone)]
enum Says {
    Text(String),
    Elsewhere,
    Nothing,
}

#[derive(Clone, Default)]
struct FakeRelay {
    keys: Arc<Mutex<KeySet>>,
    says: Arc<Mutex<HashMap<String, Says>>>,
    lured: Arc<Mutex<u32>>,
}

async fn status(State(relay): State<FakeRelay>, headers: HeaderMap) -> Response {
    let token = headers["authorization"].to_str().unwrap().strip_prefix("Bearer ").unwrap();
    let rules = Relay { issuer: ISSUER.into(), region: None };
    let admitted = rules.admit(token, &relay.keys.lock().unwrap(), now());
    let Ok(Admission::Client(pass)) = admitted else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let says = relay.says.lock().unwrap()[pass.daemon.as_str()].clone();
    match says {
        Says::Text(text) => text.into_response(),
        Says::Elsewhere => Redirect::temporary("/lure").into_response(),
        Says::Nothing => std::future::pending().await,
    }
}

async fn lure(State(relay): State<FakeRelay>) -> String {
    *relay.lured.lock().unwrap() += 1;
    json!({ "daemon": "online" }).to_string()
}

async fn start(relay: FakeRelay) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/relay", listener.local_addr().unwrap());
    let router = Router::new().route("/status", get(status)).route("/lure", get(lure));
    tokio::spawn(async move { axum::serve(listener, router.with_state(relay)).await.unwrap() });
    url
}

#[tokio::test]
async fn each_daemons_status_is_what_the_relay_says_of_it() {
    let relay = FakeRelay::default();
    let url = start(relay.clone()).await;
    let bench = Bench::with(|config| config.relay_url = url.parse().unwrap()).await;
    *relay.keys.lock().unwrap() = bench.keys().await;
    let key = bench.user("alice");
    let cases = [
        (Says::Text(json!({ "daemon": "online" }).to_string()), "online"),
        (Says::Text(json!({ "daemon": "offline", "more": 1 }).to_string()), "offline"),
        (Says::Text(json!({ "daemon": "asleep" }).to_string()), "unknown"),
        (Says::Text("not json".into()), "unknown"),
        (Says::Text(format!("{{\"daemon\":\"online\"{}}}", " ".repeat(5000))), "unknown"),
        (Says::Elsewhere, "unknown"),
    ];
    let mut expected = Vec::new();
    for (seed, (says, status)) in (1..).zip(cases) {
        let daemon = bench.daemon(&key, seed).await;
        relay.says.lock().unwrap().insert(daemon.clone(), says);
        expected.push((daemon, status.to_owned()));
    }
    let list = bench.get("/api/daemons", Some(&key)).await.body;
    let text = |view: &Value, name: &str| view[name].as_str().unwrap().to_owned();
    let seen: Vec<_> =
        list.as_array().unwrap().iter().map(|v| (text(v, "id"), text(v, "status"))).collect();
    assert_eq!(seen, expected);
    assert_eq!(*relay.lured.lock().unwrap(), 0, "a token is not carried elsewhere");
}

#[tokio::test]
async fn a_relay_that_does_not_answer_holds_up_nobody() {
    let relay = FakeRelay::default();
    let url = start(relay.clone()).await;
    let bench = Bench::with(|config| {
        config.relay_url = url.parse().unwrap();
        config.limits.question_timeout = Duration::from_secs(2);
        config.limits.list_timeout = Duration::from_millis(400);
        config.limits.questions = 4;
    })
    .await;
    *relay.keys.lock().unwrap() = bench.keys().await;
    let key = bench.user("alice");
    for seed in 1..=40 {
        let daemon = bench.daemon(&key, seed).await;
        relay.says.lock().unwrap().insert(daemon, Says::Nothing);
    }
    let begun = Instant::now();
    let list = bench.get("/api/daemons", Some(&key)).await.body;
    // Each waited for, four at once, it would be twenty seconds.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let list = list.as_array().unwrap();
    assert!(list.len() == 40 && list.iter().all(|view| view["status"] == "unknown"));
}
