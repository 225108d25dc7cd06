//! A gateway on a workbench: started on a free port, with hands to poke it.

use std::sync::Arc;
use std::time::Duration;

use bowline_gateway::Gateway;
use bowline_gateway::config::{Config, Upstream};
use bowline_store::Store;
use bowline_store::sqlite::Sqlite;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message as Packet;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::upstream::MockUpstream;

/// Nothing in these tests takes that long unless it is broken.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Bench {
    pub(crate) gateway: Gateway,
    pub(crate) store: Arc<Sqlite>,
    pub(crate) http: reqwest::Client,
    _folder: tempfile::TempDir,
}

/// A session and its token.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) token: String,
}

impl Bench {
    /// With the built-in agent, as fast as it can.
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// In front of a scripted upstream.
    pub(crate) async fn before(upstream: &MockUpstream) -> Self {
        let url = upstream.url.clone();
        Self::with(|config| {
            let upstream = Upstream { url, retries: 1, ..Upstream::default() };
            config.upstream.insert("mock".into(), upstream);
        })
        .await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Sqlite::open(folder.path()).unwrap());
        Self::on(store, folder, change).await
    }

    pub(crate) async fn on(
        store: Arc<Sqlite>,
        folder: tempfile::TempDir,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
        config.offline.pace = Duration::ZERO;
        change(&mut config);
        let shared: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
        let gateway = Gateway::start(config, shared, Some(LOCAL_KEY)).await.unwrap();
        Self { gateway, store, http: reqwest::Client::new(), _folder: folder }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.gateway.address())
    }

    pub(crate) async fn session(&self) -> Session {
        let made = self.post("/v1/sessions", json!({})).await;
        assert_eq!(made.status, 201, "{:?}", made.body);
        Session {
            id: made.body["session_id"].as_str().unwrap().into(),
            token: made.body["session_token"].as_str().unwrap().into(),
        }
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

    /// The session's log, as `(role, content)`.
    pub(crate) async fn log(&self, session: &Session) -> Vec<(String, String)> {
        let log = self.get(&format!("/v1/sessions/{}/messages?limit=500", session.id)).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let entries = log.body["messages"].as_array().unwrap().iter();
        entries.map(|e| (text(&e["message"]["role"]), text(&e["message"]["content"]))).collect()
    }

    pub(crate) async fn socket(&self, id: &str) -> Phone {
        let url = format!("ws://{}/v1/sbp/ws/{id}", self.gateway.address());
        let (socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        Phone { socket }
    }

    /// A surface that has said hello and been welcomed.
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

    /// Waits until the session looks as it should.
    pub(crate) async fn until(&self, session: &Session, what: &str, is: impl Fn(&Value) -> bool) {
        let wait = async {
            loop {
                if is(&self.show(session).await) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, wait).await.is_err() {
            panic!("never {what}: {}", self.show(session).await);
        }
    }

    pub(crate) async fn until_status(&self, session: &Session, status: &str) {
        self.until(session, status, |seen| seen["status"] == status).await;
    }

    pub(crate) async fn until_pending(&self, session: &Session, turns: u64) {
        let what = format!("{turns} pending");
        self.until(session, &what, |seen| seen["tether_turns_pending"] == turns).await;
    }
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
    /// The assistant's words.
    pub(crate) fn content(&self) -> &str {
        self.body["choices"][0]["message"]["content"].as_str().unwrap_or_default()
    }

    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    /// The payloads of an event stream.
    pub(crate) fn events(&self) -> Vec<String> {
        let events = self.text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        events.map(str::to_owned).collect()
    }
}

pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = tokio::time::timeout(DEADLINE, request.send()).await.unwrap().unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = tokio::time::timeout(DEADLINE, response.text()).await.unwrap().unwrap();
    let body = serde_json::from_str(&text).unwrap_or_default();
    Answer { status, headers, text, body }
}

/// A surface's side of a socket, by hand.
pub(crate) struct Phone {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Phone {
    pub(crate) async fn send(&mut self, frame: Value) {
        self.socket.send(Packet::text(frame.to_string())).await.unwrap();
    }

    /// The next JSON frame. Pings are answered by the library on the way.
    pub(crate) async fn next(&mut self) -> Value {
        match self.packet().await {
            Packet::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("expected a frame, got {other:?}"),
        }
    }

    /// The next packet that is not a ping or pong.
    pub(crate) async fn packet(&mut self) -> Packet {
        loop {
            let next = tokio::time::timeout(DEADLINE, self.socket.next()).await;
            match next.expect("nothing came in time").expect("the socket ended").unwrap() {
                Packet::Ping(_) => self.socket.flush().await.unwrap(),
                Packet::Pong(_) => {}
                other => return other,
            }
        }
    }

    /// Reads frames until one of that type, which is given too.
    pub(crate) async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let frame = self.next().await;
            let found = frame["type"] == kind;
            seen.push(frame);
            if found {
                return seen;
            }
        }
    }

    /// The close code; frames before it are passed over.
    pub(crate) async fn closed(&mut self) -> u16 {
        loop {
            match self.packet().await {
                Packet::Close(frame) => return frame.map_or(1005, |frame| frame.code.into()),
                _ => continue,
            }
        }
    }

    /// Answers pings, and so confirms what came, until the gateway has nothing pending.
    pub(crate) async fn confirm(&mut self, bench: &Bench, session: &Session) {
        let read = async {
            loop {
                if let Some(Ok(Packet::Ping(_))) = self.socket.next().await {
                    self.socket.flush().await.unwrap();
                }
            }
        };
        tokio::select! {
            () = bench.until_pending(session, 0) => {}
            () = read => {}
        }
    }
}

/// The text of a live turn, put together from its chunks.
pub(crate) fn joined(frames: &[Value]) -> String {
    let mut text = String::new();
    for chunk in frames.iter().filter(|frame| frame["type"] == "TURN_CHUNK") {
        let offset = chunk["offset"].as_u64().unwrap() as usize;
        assert!(offset <= text.len(), "a gap in the stream: {chunk}");
        text.truncate(offset);
        text.push_str(chunk["delta"].as_str().unwrap());
    }
    text
}
