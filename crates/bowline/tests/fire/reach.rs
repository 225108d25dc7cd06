//! The way that clients take to a gateway, and the verdict over what they were told.

use std::time::{Duration, Instant};

use bowline_checker::{Anomaly, Entry, EntryKind, Event, Log, Outcome, Status, check};
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
    pub(crate) record: Record,
}

impl Reach {
    /// All of them at one address.
    pub(crate) fn new(address: &str) -> Self {
        let url = format!("http://{address}");
        Self {
            address: address.to_owned(),
            caller_url: url.clone(),
            own_url: url,
            record: Record::default(),
        }
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller::new(&self.caller_url, &self.record)
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
        self.record.with(|history| check(history))
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
        let response = reqwest::get(format!("{}{path}", self.own_url)).await.unwrap();
        response.json().await.unwrap()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let request = reqwest::Client::new().post(format!("{}{path}", self.own_url)).json(&body);
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.json().await.unwrap()
    }
}

fn entry(view: &Value) -> Entry {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let kind = match view["kind"].as_str().unwrap() {
        "message" => EntryKind::Message,
        "turn" => EntryKind::Turn,
        "note" => EntryKind::Note,
        other => panic!("an entry of kind {other}"),
    };
    let status = match view["status"].as_str().unwrap() {
        "complete" => Status::Complete,
        "cancelled" => Status::Cancelled,
        "failed" => Status::Failed,
        "interrupted" => Status::Interrupted,
        other => panic!("an entry that is {other}"),
    };
    Entry {
        seq: view["seq"].as_u64().unwrap(),
        turn_id: text(&view["turn_id"]),
        kind,
        content: text(&view["message"]["content"]),
        status,
        // No test here asks for turns that surfaces do not get.
        tethered: kind != EntryKind::Message,
    }
}
