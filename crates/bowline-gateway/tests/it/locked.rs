//! A gateway that requires an API key, and requests with that key or a session's token.

use bowline_gateway::config::Config;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench, Session};

pub(crate) const KEY: &str = "an-api-key-of-this-test";

pub(crate) fn lock(config: &mut Config) {
    config.auth.api_keys = vec![KEY.into()];
}

pub(crate) fn bearer(text: &str) -> String {
    format!("Bearer {text}")
}

/// The same as [`Bench::call`] with the key of this test.
pub(crate) async fn by_key(bench: &Bench, method: Method, path: &str, body: Value) -> Answer {
    let key = bearer(KEY);
    bench.call(method, path, &[("Authorization", &key)], &body).await
}

pub(crate) async fn by_token(
    bench: &Bench,
    session: &Session,
    method: Method,
    path: &str,
) -> Answer {
    let body = if method == Method::GET { Value::Null } else { json!({ "to_agent_id": "cook" }) };
    bench.call(method, path, &[("X-Session-Token", &session.token)], &body).await
}
