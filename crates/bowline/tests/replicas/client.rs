//! A client over HTTP that asks one of the replicas.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::phone::Phone;
use crate::process::DEADLINE;

#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) token: String,
}

impl Session {
    /// Of the answer that made it.
    pub(crate) fn of(made: &Answer) -> Self {
        assert_eq!(made.status, 201, "{made:?}");
        let text = |name: &str| made.body[name].as_str().unwrap().to_owned();
        Self { id: text("session_id"), token: text("session_token") }
    }

    /// What is under it: `messages`, `cancel`; nothing: the session.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{}{rest}", self.id, if rest.is_empty() { "" } else { "/" })
    }

    /// A turn of it, with these words.
    pub(crate) fn turn(&self, words: &str) -> Value {
        json!({
            "model": "bowline/offline", "sbp": { "session_id": self.id },
            "messages": [{ "role": "user", "content": words }],
        })
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    /// What the agent said.
    pub(crate) fn content(&self) -> &str {
        assert_eq!(self.status, 200, "{}", self.text);
        self.body["choices"][0]["message"]["content"].as_str().unwrap()
    }

    /// Status and code of a refusal.
    pub(crate) fn refusal(&self) -> (u16, &str) {
        (self.status, self.body["error"]["code"].as_str().unwrap_or_default())
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    pub(crate) address: String,
    /// What it shows.
    pub(crate) key: String,
}

impl Client {
    pub(crate) fn new(address: &str, key: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        Self { http, address: address.to_owned(), key: key.to_owned() }
    }

    /// The same with another key.
    pub(crate) fn with(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("http://{}{path}", self.address)).bearer_auth(&self.key)
    }

    /// None: the connection broke.
    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Option<Answer> {
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        let text = response.text().await.ok()?;
        Some(Answer { status, body: serde_json::from_str(&text).unwrap_or_default(), text })
    }

    /// With this body; `Null`: without one.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Value) -> Answer {
        let mut request = self.request(method, path);
        if !body.is_null() {
            request = request.json(&body);
        }
        self.send(request).await.unwrap_or_else(|| panic!("{path} is not answered"))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, body).await
    }

    pub(crate) async fn session(&self) -> Session {
        Session::of(&self.post("/v1/sessions", json!({})).await)
    }

    /// A turn, answered whole.
    pub(crate) async fn say(&self, session: &Session, words: &str) -> Answer {
        self.post("/v1/chat/completions", session.turn(words)).await
    }

    /// The entries of a session's log, up to 500.
    pub(crate) async fn log(&self, session: &Session) -> Vec<Value> {
        let mut page = self.get(&session.path("messages?limit=500")).await.body;
        assert_eq!(page["more"], false);
        std::mem::take(page["messages"].as_array_mut().unwrap())
    }

    /// A surface attached with this `surface_context`, which joins others.
    pub(crate) async fn attach(&self, session: &Session, surface: Value) -> Phone {
        Phone::attach(&self.address, session, surface).await
    }
}

/// The result of a request to the MCP front of a replica.
pub(crate) async fn mcp(client: &Client, method: &str, params: Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let request = client
        .request(Method::POST, "/mcp")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-06-18");
    let answer = client.send(request.json(&body)).await.expect("it is answered");
    assert_eq!(answer.status, 200, "{}", answer.text);
    // As JSON, or as an event.
    let mut message = answer.text.lines().filter_map(|line| {
        serde_json::from_str::<Value>(line.strip_prefix("data:").unwrap_or(line)).ok()
    });
    let message = message.next_back().unwrap_or_else(|| panic!("{}", answer.text));
    assert!(message["error"].is_null(), "{message}");
    message["result"].clone()
}

/// How soon what is changed or let in at one replica counts at the others: within two seconds, as
/// docs/security.md and docs/usage.md promise. Asserted in a soak, where nothing else runs beside it.
pub(crate) fn soon() -> Duration {
    match std::env::var_os("BOWLINE_SOAK") {
        Some(_) => Duration::from_secs(2),
        None => DEADLINE,
    }
}

/// Asks again and again until it is so; returns how long it took.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < DEADLINE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begun.elapsed()
}
