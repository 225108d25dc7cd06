//! The test bench: a gateway on a free port, with helpers to call it.

use std::sync::Arc;
use std::time::Duration;

use bowline_bus::{Bus, Memory};
use bowline_gateway::config::{ApprovalsMode, Config, Policy, ToolRule};
use bowline_gateway::{Gateway, Signer, identity_file};
use bowline_store::Store;
use bowline_store::sqlite::Sqlite;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) use crate::phone::{Phone, joined};
use crate::upstream::MockUpstream;

/// The timeout of waits in tests; nothing takes that long unless it is broken.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Bench {
    pub(crate) gateway: Gateway,
    /// Another replica, which owns the sessions that [`Bench::session`] creates: with
    /// `BOWLINE_TEST_EDGE=1` in the environment, all requests of a test go to one that does not.
    pub(crate) owner: Option<Owner>,
    pub(crate) store: Arc<Sqlite>,
    pub(crate) http: reqwest::Client,
    pub(crate) folder: tempfile::TempDir,
}

/// A gateway that stops with its bench.
pub(crate) struct Owner(Option<Gateway>);

impl Drop for Owner {
    fn drop(&mut self) {
        if let (Some(gateway), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(gateway.stop());
        }
    }
}

/// A rule that lets every tool run.
fn allow_all() -> ToolRule {
    ToolRule {
        user: None,
        agent: None,
        server: None,
        tool: None,
        policy: Policy::Allow,
        second_person: false,
    }
}

/// A session and its token.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) token: String,
}

impl Session {
    /// The same session, opened with the key of the machine's owner, who may approve.
    pub(crate) fn as_owner(&self) -> Self {
        Self { token: LOCAL_KEY.into(), ..self.clone() }
    }

    /// The session of a response, from its `sbp` object.
    pub(crate) fn of(answer: &Value) -> Self {
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        Self { id: text("session_id"), token: text("session_token") }
    }
}

impl Bench {
    /// With the built-in agent, without a pause between words.
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// In front of a scripted upstream.
    pub(crate) async fn before(upstream: &MockUpstream) -> Self {
        Self::before_with(upstream, |_| {}).await
    }

    /// The same with other settings; the upstream is `config.upstream["mock"]`.
    pub(crate) async fn before_with(
        upstream: &MockUpstream,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let (store, folder) = open();
        let shared = Arc::clone(&store);
        Self::assemble(store, shared, folder, |config| {
            upstream.configure(config);
            change(config);
        })
        .await
    }

    /// The same with a wrapper around the store.
    pub(crate) async fn before_on(
        upstream: &MockUpstream,
        wrap: impl FnOnce(Arc<Sqlite>) -> Arc<dyn Store>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let (store, folder) = open();
        let shared = wrap(Arc::clone(&store));
        Self::assemble(store, shared, folder, |config| {
            upstream.configure(config);
            change(config);
        })
        .await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let (store, folder) = open();
        Self::on(store, folder, change).await
    }

    pub(crate) async fn on(
        store: Arc<Sqlite>,
        folder: tempfile::TempDir,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let shared = Arc::clone(&store);
        Self::assemble(store, shared, folder, change).await
    }

    async fn assemble(
        store: Arc<Sqlite>,
        shared: Arc<dyn Store>,
        folder: tempfile::TempDir,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = base_config();
        change(&mut config);
        let bus = Arc::new(Memory::new());
        let mut owner = None;
        if std::env::var_os("BOWLINE_TEST_EDGE").is_some() {
            // Of an earlier bench on this store, if a test restarts its gateway.
            for earlier in shared.replicas().await.unwrap() {
                shared.retire(earlier.id).await.unwrap();
            }
            owner = Some(Owner(Some(replica(&config, &shared, &bus, &folder).await)));
        }
        let gateway = replica(&config, &shared, &bus, &folder).await;
        Self { gateway, owner, store, http: reqwest::Client::new(), folder }
    }

    /// One of several replicas, with its own folder and the same store and bus.
    pub(crate) async fn replica(
        store: &Arc<Sqlite>,
        bus: &Arc<impl Bus>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let (mut config, folder) = (base_config(), tempfile::tempdir().unwrap());
        change(&mut config);
        let shared: Arc<dyn Store> = Arc::<Sqlite>::clone(store);
        let gateway = replica(&config, &shared, bus, &folder).await;
        let (store, http) = (Arc::clone(store), reqwest::Client::new());
        Self { gateway, owner: None, store, http, folder }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.gateway.url())
    }

    pub(crate) async fn session(&self) -> Session {
        let made = self.post("/v1/sessions", json!({})).await;
        assert_eq!(made.status, 201, "{:?}", made.body);
        let session = Session::of(&made.body);
        if let Some(owner) = &self.owner {
            self.give_to(owner.0.as_ref().unwrap(), &session).await;
        }
        session
    }

    /// That replica takes the lease of a session: with its first write, which leaves no trace.
    pub(crate) async fn give_to(&self, owner: &Gateway, session: &Session) {
        let url = format!("{}/v1/sessions/{}", owner.url(), session.id);
        for title in ["mine", ""] {
            let request = self.http.patch(&url).bearer_auth(LOCAL_KEY);
            let renamed = answer(request.json(&json!({ "title": title }))).await;
            assert_eq!(renamed.status, 200, "{}", renamed.text);
        }
    }

    /// Sends a request with these headers; `Null`: no body.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let mut request = self.http.request(method, self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_null() {
            request = request.json(body);
        }
        answer(request).await
    }

    pub(crate) async fn chat(&self, body: Value) -> Answer {
        self.chat_as(&[], body).await
    }

    pub(crate) async fn chat_as(&self, headers: &[(&str, &str)], body: Value) -> Answer {
        self.call(Method::POST, "/v1/chat/completions", headers, &body).await
    }

    /// Posts a text unchanged.
    pub(crate) async fn chat_text(&self, text: &str) -> Answer {
        let request = self.http.post(self.url("/v1/chat/completions"));
        answer(request.header("content-type", "application/json").body(text.to_owned())).await
    }

    /// With the key of the machine's owner.
    pub(crate) async fn post_as_owner(&self, path: &str, body: Value) -> Answer {
        answer(self.http.post(self.url(path)).bearer_auth(LOCAL_KEY).json(&body)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        answer(self.http.post(self.url(path)).json(&body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        answer(self.http.get(self.url(path))).await
    }

    /// A turn in a session, resuming it, over HTTP.
    pub(crate) async fn say(&self, session: &Session, text: &str) -> Answer {
        self.say_to(session, "m", text).await
    }

    pub(crate) async fn say_to(&self, session: &Session, model: &str, text: &str) -> Answer {
        self.post("/v1/chat/completions", turn(session, model, text)).await
    }

    pub(crate) async fn show(&self, session: &Session) -> Value {
        self.get(&format!("/v1/sessions/{}", session.id)).await.body
    }

    /// All sessions.
    pub(crate) async fn sessions(&self) -> Vec<Value> {
        list(&self.get("/v1/sessions?limit=200").await.body["sessions"])
    }

    /// The session's log.
    pub(crate) async fn entries(&self, session: &Session) -> Vec<Value> {
        let log = self.get(&format!("/v1/sessions/{}/messages?limit=500", session.id)).await;
        list(&log.body["messages"])
    }

    /// The session's log, as `(role, content)`.
    pub(crate) async fn log(&self, session: &Session) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let entries = self.entries(session).await;
        let said = entries.iter().map(|entry| &entry["message"]);
        said.map(|m| (text(&m["role"]), text(&m["content"]))).collect()
    }

    /// A raw TCP connection on which `said` was sent.
    pub(crate) async fn raw(&self, text: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.gateway.address()).await.unwrap();
        socket.write_all(text.as_bytes()).await.unwrap();
        socket
    }

    pub(crate) async fn socket(&self, id: &str) -> Phone {
        let url = format!("ws://{}/v1/sbp/ws/{id}", self.gateway.address());
        let (socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        Phone { socket }
    }

    /// A surface that has attached and received `SESSION_ATTACHED`.
    pub(crate) async fn attach(&self, session: &Session) -> (Phone, Value) {
        self.attach_as(session, json!({ "device_type": "mobile" })).await
    }

    pub(crate) async fn attach_as(&self, session: &Session, surface: Value) -> (Phone, Value) {
        let mut phone = self.socket(&session.id).await;
        phone.send(hello(session, surface)).await;
        let welcome = phone.next().await;
        assert_eq!(welcome["type"], "SESSION_ATTACHED", "{welcome}");
        (phone, welcome)
    }

    /// Polls the session until the condition holds.
    pub(crate) async fn until(&self, session: &Session, what: &str, is: impl Fn(&Value) -> bool) {
        eventually(what, async || is(&self.show(session).await)).await;
    }

    pub(crate) async fn until_status(&self, session: &Session, status: &str) {
        self.until(session, status, |seen| seen["status"] == status).await;
    }

    pub(crate) async fn until_pending(&self, session: &Session, turns: u64) {
        let what = format!("{turns} pending");
        self.until(session, &what, |seen| seen["tether_turns_pending"] == turns).await;
    }
}

fn base_config() -> Config {
    let mut config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
    config.offline.pace = Duration::ZERO;
    // Most tests are about what becomes of a call, not about permission; `permissions.rs` is.
    config.tools.rules.push(allow_all());
    config.tools.approvals = ApprovalsMode::Wait;
    config
}

async fn replica(
    config: &Config,
    store: &Arc<dyn Store>,
    bus: &Arc<impl Bus>,
    folder: &tempfile::TempDir,
) -> Gateway {
    let identity = identity_file::load_or_make(folder.path()).unwrap();
    let previous = identity_file::load_previous(folder.path(), Timestamp::now()).unwrap();
    let signer = Signer::Own(Arc::new(identity), previous);
    let (config, store) = (config.clone(), Arc::clone(store));
    let bus = Arc::clone(bus);
    Gateway::start_with(config, store, bus, Some(LOCAL_KEY), signer).await.unwrap()
}

pub(crate) fn open() -> (Arc<Sqlite>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Arc::new(Sqlite::open(folder.path()).unwrap()), folder)
}

/// The next bytes of a raw connection; empty at its end, however it ends.
pub(crate) async fn some_of(socket: &mut TcpStream) -> String {
    let mut piece = [0; 4096];
    let read = tokio::time::timeout(DEADLINE, socket.read(&mut piece)).await;
    let length = read.expect("nothing came in time").unwrap_or_default();
    String::from_utf8_lossy(&piece[..length]).into_owned()
}

/// Reads until the gateway closes the connection.
pub(crate) async fn until_closed(socket: &mut TcpStream) -> String {
    let mut all = String::new();
    loop {
        match some_of(socket).await {
            end if end.is_empty() => return all,
            piece => all += &piece,
        }
    }
}

/// Polls until the condition holds.
pub(crate) async fn eventually(what: &str, is: impl AsyncFn() -> bool) {
    let wait = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, wait).await.is_ok(), "never {what}");
}

/// The key of this machine's owner.
pub(crate) const LOCAL_KEY: &str = "local-key-of-the-test-machine";

pub(crate) fn hello(session: &Session, surface: Value) -> Value {
    json!({
        "type": "ATTACH_SESSION", "session_id": session.id, "session_token": session.token,
        "surface": surface,
    })
}

pub(crate) fn turn(session: &Session, model: &str, text: &str) -> Value {
    json!({
        "model": model,
        "messages": [{ "role": "user", "content": text }],
        "sbp": { "session_id": session.id },
    })
}

/// An HTTP answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    /// `Null` if it is not JSON.
    pub(crate) body: Value,
}

impl Answer {
    /// The assistant's text.
    pub(crate) fn content(&self) -> &str {
        self.body["choices"][0]["message"]["content"].as_str().unwrap_or_default()
    }

    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Status and code of an error.
    pub(crate) fn refusal(&self) -> (u16, &str) {
        (self.status, self.code())
    }

    /// The payloads of an event stream.
    pub(crate) fn events(&self) -> Vec<&str> {
        self.text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect()
    }

    /// The chunks of a stream that ended well.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        let mut events = self.events();
        assert_eq!(events.pop(), Some("[DONE]"), "{}", self.text);
        events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }
}

pub(crate) fn list(value: &Value) -> Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("not a list: {value}")).clone()
}

/// The text of a stream's chunks.
pub(crate) fn spoken(chunks: &[Value]) -> String {
    let words = chunks.iter().map(|c| c["choices"][0]["delta"]["content"].as_str());
    words.map(Option::unwrap_or_default).collect()
}

/// A request with one user message and no session.
pub(crate) fn plain(model: &str, text: &str) -> Value {
    json!({ "model": model, "messages": [user(text)] })
}

/// The same with an `sbp` object.
pub(crate) fn asked(model: &str, text: &str, sbp: Value) -> Value {
    json!({ "model": model, "messages": [user(text)], "sbp": sbp })
}

pub(crate) fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = tokio::time::timeout(DEADLINE, request.send()).await.unwrap().unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = tokio::time::timeout(DEADLINE, response.text()).await.unwrap().unwrap();
    let body = serde_json::from_str(&text).unwrap_or_default();
    Answer { status, headers, text, body }
}
