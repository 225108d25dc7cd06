//! One gateway that is ended and started again at the same address, and the verdict over it.

use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use bowline_checker::{Anomaly, Entry, EntryKind, Event, Log, Outcome, Status, check};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::caller::Caller;
use crate::process::{DEADLINE, Process};
use crate::record::Record;
use crate::surface::{Broken, Surface, Taste};

#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) token: String,
}

pub(crate) struct World {
    process: Process,
    folder: TempDir,
    /// The address that the gateway listens at.
    listen: String,
    environment: Vec<(&'static str, String)>,
    /// Where surfaces connect to, and where callers do.
    pub(crate) address: String,
    caller_url: String,
    pub(crate) record: Record,
    /// Turns that were taken up after restarts.
    pub(crate) recovered: u64,
}

impl World {
    /// A gateway whose built-in agent pauses that long between two words.
    pub(crate) fn start(pace: &'static str) -> Self {
        Self::started(tempfile::tempdir().unwrap(), pace, vec![])
    }

    /// The same with more settings, in a folder.
    pub(crate) fn started(
        folder: TempDir,
        pace: &'static str,
        mut environment: Vec<(&'static str, String)>,
    ) -> Self {
        environment.push(("BOWLINE_OFFLINE_PACE", pace.to_owned()));
        let listen = format!("127.0.0.1:{}", quiet_port());
        let process = begin(folder.path(), &listen, &environment);
        Self {
            address: listen.clone(),
            caller_url: process.url.clone(),
            process,
            folder,
            listen,
            environment,
            record: Record::default(),
            recovered: 0,
        }
    }

    /// From now on surfaces and callers take these ways to the gateway: `HOST:PORT`.
    pub(crate) fn reached_by(&mut self, surfaces: &str, callers: &str) {
        self.address = surfaces.to_owned();
        self.caller_url = format!("http://{callers}");
    }

    /// From now on they connect to the gateway itself.
    pub(crate) fn reached_directly(&mut self) {
        self.reached_by(&self.listen.clone(), &self.listen.clone());
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// kill -9, then whatever happens to the data meanwhile, then the next one.
    pub(crate) fn crash(&mut self, meanwhile: impl FnOnce(&Path)) {
        tokio::task::block_in_place(|| self.process.kill());
        self.restart(meanwhile);
    }

    /// SIGTERM; gives how long the end took.
    pub(crate) fn stop(&mut self) -> Duration {
        let begun = Instant::now();
        self.process.terminate();
        let status = tokio::task::block_in_place(|| self.process.ended());
        assert!(status.success(), "{status}");
        begun.elapsed()
    }

    /// Starts the next one, after the last has ended.
    pub(crate) fn restart(&mut self, meanwhile: impl FnOnce(&Path)) {
        self.record.restarted();
        tokio::task::block_in_place(|| {
            meanwhile(self.folder.path());
            self.process = begin(self.folder.path(), &self.listen, &self.environment);
        });
        self.recovered += self.process.recovered;
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller::new(&self.caller_url, &self.record)
    }

    pub(crate) async fn session(&self) -> Session {
        let made = self.process.post("/v1/sessions", json!({})).await;
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        Session { id: text("session_id"), token: text("session_token") }
    }

    pub(crate) async fn attach(&self, session: &Session, taste: Taste) -> Result<Surface, Broken> {
        Surface::attach(&self.address, session, taste, &self.record).await
    }

    pub(crate) async fn pending(&self, session: &Session) -> u64 {
        let seen = self.process.get(&format!("/v1/sessions/{}", session.id)).await;
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
            let page = self.process.get(&path).await;
            entries.extend(page["messages"].as_array().unwrap().iter().map(entry));
            if page["more"] == false {
                return entries;
            }
        }
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

fn begin(data: &Path, address: &str, environment: &[(&'static str, String)]) -> Process {
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, &**value)).collect();
    Process::start_at(data, address, &environment)
}

/// A port that the system gives to nobody else while the gateway is down: below those it hands
/// out, where a client that knocks at a closed port could even be connected to itself.
pub(crate) fn quiet_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let offset = NEXT.fetch_add(1, Ordering::SeqCst) % 40;
        let port = 10_000 + (std::process::id() % 500) as u16 * 40 + offset;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
