//! Users of a gateway and their keys, for tests.

use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench, Session};

/// A user with a key.
#[derive(Debug, Clone)]
pub(crate) struct Person {
    pub(crate) key: String,
    pub(crate) id: String,
}

pub(crate) async fn add_user(bench: &Bench, name: &str) {
    let added = bench.post_as_owner("/v1/users", json!({ "name": name })).await;
    assert_eq!(added.status, 201, "{}", added.text);
}

pub(crate) async fn key(bench: &Bench, user: &str, more: Value) -> Person {
    let mut asked = json!({ "user": user, "name": "laptop" });
    asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = bench.post_as_owner("/v1/keys", asked).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let text = |name: &str| made.body[name].as_str().unwrap().to_owned();
    Person { key: text("key"), id: text("id") }
}

pub(crate) async fn person(bench: &Bench, name: &str) -> Person {
    add_user(bench, name).await;
    key(bench, name, json!({})).await
}

pub(crate) async fn call(
    bench: &Bench,
    key: &str,
    method: Method,
    path: &str,
    body: Value,
) -> Answer {
    let bearer = format!("Bearer {key}");
    bench.call(method, path, &[("authorization", &bearer)], &body).await
}

pub(crate) async fn get(bench: &Bench, key: &str, path: &str) -> Answer {
    call(bench, key, Method::GET, path, Value::Null).await
}

pub(crate) async fn session_of(bench: &Bench, key: &str) -> Session {
    let made = call(bench, key, Method::POST, "/v1/sessions", json!({})).await;
    assert_eq!(made.status, 201, "{}", made.text);
    Session::of(&made.body)
}

pub(crate) async fn share(bench: &Bench, key: &str, session: &Session, with: &str, scope: &str) {
    let path = format!("/v1/sessions/{}/shares/{with}", session.id);
    let shared = call(bench, key, Method::PUT, &path, json!({ "scope": scope })).await;
    assert_eq!(shared.status, 200, "{}", shared.text);
}
