//! The way that clients take to a gateway, and the verdict over what they were told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowline_checker::{
    Anomaly, Entry, EntryKind, Event, Log, Outcome, Status, Token, ToolResult, ToolStep, check,
};
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::process::DEADLINE;
use crate::record::Record;
use crate::surface::{Broken, Surface, Taste};

#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) token: String,
}

#[derive(Clone)]
pub(crate) struct Reach {
    /// Where surfaces connect to.
    pub(crate) address: String,
    /// Where callers do, and where sessions are made and looked at.
    pub(crate) caller_url: String,
    pub(crate) own_url: String,
    /// The same for each replica: what one was asked may be asked at another.
    pub(crate) replica_urls: Vec<String>,
    pub(crate) record: Record,
    pub(crate) http: reqwest::Client,
    /// The roaming tokens that were made.
    pub(crate) exports: Arc<Mutex<Vec<Export>>>,
}

/// A roaming token, and what the gateway calls it.
#[derive(Debug, Clone)]
pub(crate) struct Export {
    pub(crate) token: Token,
    pub(crate) origin: Session,
    pub(crate) id: String,
}

impl Reach {
    /// All of them at one address.
    pub(crate) fn new(address: &str) -> Self {
        let url = format!("http://{address}");
        Self {
            address: address.to_owned(),
            caller_url: url.clone(),
            replica_urls: vec![url.clone()],
            own_url: url,
            record: Record::default(),
            http: http(),
            exports: Arc::default(),
        }
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller::new(std::slice::from_ref(&self.caller_url), &self.record)
    }

    /// A program that asks at that replica, and at the next one when it gets no answer.
    pub(crate) fn caller_at(&self, replica: usize) -> Caller {
        let mut urls = self.replica_urls.clone();
        let first = replica % urls.len();
        urls.rotate_left(first);
        Caller::new(&urls, &self.record)
    }

    pub(crate) async fn session(&self) -> Session {
        let made = self.post("/v1/sessions", json!({})).await;
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        Session { id: text("session_id"), token: text("session_token") }
    }

    pub(crate) async fn attach(&self, session: &Session, taste: Taste) -> Result<Surface, Broken> {
        Surface::attach(&self.address, session, taste, &self.record).await
    }

    pub(crate) async fn pending(&self, session: &Session) -> u64 {
        let seen = self.get(&format!("/v1/sessions/{}", session.id)).await;
        seen["tether_turns_pending"].as_u64().unwrap()
    }

    /// Waits until so many turns are pending, while nothing reads.
    pub(crate) async fn until_pending(&self, session: &Session, count: u64) {
        let begun = Instant::now();
        while self.pending(session).await != count {
            assert!(begun.elapsed() < DEADLINE, "never {count} pending");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until so much more was acknowledged.
    pub(crate) async fn progress(&self, more: usize) {
        let (goal, begun) = (self.record.acknowledged() + more, Instant::now());
        while self.record.acknowledged() < goal {
            assert!(begun.elapsed() < DEADLINE, "nothing is answered any more");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Reads until the gateway says that this surface has everything.
    pub(crate) async fn drain(&self, session: &Session, surface: &mut Surface) {
        tokio::select! {
            () = self.until_pending(session, 0) => {}
            broken = async { loop { if let Err(broken) = surface.next().await { break broken } } } =>
                panic!("the surface was let go: {broken:?}"),
        }
    }

    /// Drains every session, reads its log, and compares. Nobody may be asking any more.
    pub(crate) async fn verdict(&self, sessions: &[Session]) -> Vec<Anomaly> {
        for session in sessions {
            let mut surface = self.attach(session, Taste::Whole).await.unwrap();
            let begun = Instant::now();
            let entries = loop {
                self.drain(session, &mut surface).await;
                let entries = self.entries(session).await;
                // What is missing in the end is for the checker to say.
                let is_all = self.has_all_accepted(&entries, session) || begun.elapsed() > DEADLINE;
                if is_all && self.pending(session).await == 0 {
                    break entries;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            surface.detach().await;
            self.record.with(|history| history.ended(&session.id, Log { entries, drained: true }));
        }
        let exports = std::mem::take(&mut *self.exports.lock().unwrap());
        for export in exports {
            let came = self.came_from(&export).await;
            self.record.with(|history| history.came_from(export.token, came));
        }
        self.record.with(|history| check(history))
    }

    /// The sessions that imports made of a token, with the contents of their logs.
    async fn came_from(&self, export: &Export) -> BTreeMap<String, Vec<String>> {
        let lineage = self.get(&format!("/v1/sessions/{}/lineage", export.origin.id)).await;
        let mut came = BTreeMap::new();
        for edge in lineage["tree"].as_array().unwrap() {
            if edge["kind"] == "import" && edge["export_id"] == export.id {
                let id = edge["to_session_id"].as_str().unwrap().to_owned();
                let entries = self.entries(&Session { id: id.clone(), token: String::new() }).await;
                came.insert(id, entries.into_iter().map(|entry| entry.content).collect());
            }
        }
        came
    }

    /// Turns that were taken on over a socket may still be running.
    fn has_all_accepted(&self, entries: &[Entry], session: &Session) -> bool {
        let mut ours = Vec::new();
        self.record.with(|history| {
            history.events.iter().all(|event| match event {
                Event::Asked { ask, session: it, .. } => {
                    if *it == session.id {
                        ours.push(*ask);
                    }
                    true
                }
                Event::Told { ask, outcome: Outcome::Accepted { turn_id } } => {
                    !ours.contains(ask)
                        || entries.iter().any(|entry| entry.is_reply() && entry.turn_id == *turn_id)
                }
                _ => true,
            })
        })
    }

    async fn entries(&self, session: &Session) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let after = entries.last().map_or(0, |entry| entry.seq);
            let path = format!("/v1/sessions/{}/messages?after={after}&limit=500", session.id);
            let page = self.get(&path).await;
            entries.extend(page["messages"].as_array().unwrap().iter().map(entry));
            if page["more"] == false {
                return entries;
            }
        }
    }

    async fn get(&self, path: &str) -> Value {
        let response = self.http.get(format!("{}{path}", self.own_url)).send().await.unwrap();
        response.json().await.unwrap()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.http.post(format!("{}{path}", self.own_url)).json(&body);
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.json().await.unwrap()
    }
}

/// Each request has a connection of its own: whoever was at the other end of the last one may be dead.
fn http() -> reqwest::Client {
    let client = reqwest::Client::builder().timeout(DEADLINE).pool_max_idle_per_host(0);
    client.build().unwrap()
}

fn entry(view: &Value) -> Entry {
    let kind = match view["kind"].as_str().unwrap() {
        "message" => EntryKind::Message,
        "turn" => EntryKind::Turn,
        "note" => EntryKind::Note,
        "action" => EntryKind::Action,
        other => panic!("an entry of kind {other}"),
    };
    let status = match view["status"].as_str().unwrap() {
        "complete" => Status::Complete,
        "cancelled" => Status::Cancelled,
        "failed" => Status::Failed,
        "interrupted" => Status::Interrupted,
        other => panic!("an entry that is {other}"),
    };
    let message = &view["message"];
    Entry {
        seq: view["seq"].as_u64().unwrap(),
        // What was imported has none.
        turn_id: view["turn_id"].as_str().unwrap_or_default().to_owned(),
        kind,
        // That of a tool call is empty.
        content: message["content"].as_str().unwrap_or_default().to_owned(),
        status,
        // No test here asks for turns that surfaces do not get.
        tethered: matches!(kind, EntryKind::Turn | EntryKind::Note),
        // A turn may end with calls that are for its caller.
        tools: if kind == EntryKind::Action { tools(message) } else { Vec::new() },
    }
}

/// What a message of the log says of calls of tools.
fn tools(message: &Value) -> Vec<ToolStep> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    if message["role"] == "tool" {
        let content = text(&message["content"]);
        let is_error = serde_json::from_str::<Value>(&content)
            .is_ok_and(|content| content["error"].is_string());
        let result = if is_error { ToolResult::Failed } else { ToolResult::Said(content) };
        return vec![ToolStep::Ended { id: text(&message["tool_call_id"]), result }];
    }
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let called = |call: &Value| ToolStep::Called {
        id: text(&call["id"]),
        input: text(&call["function"]["arguments"]),
    };
    calls.map(called).collect()
}
