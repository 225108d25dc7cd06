//! A small relay that keeps to what the suite checks, with switches that make it break one requirement each.

mod connection;
mod faults;
mod messages;
mod sessions;
mod token;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use ed25519_dalek::VerifyingKey;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use faults::Fault;
use sessions::Slot;

/// How long a session waits for its daemon: longer than a busy machine takes for what a check does in a pause.
const GRACE: Duration = Duration::from_secs(20);
/// Longer than a check waits for what a `close` has to do.
const LONG_GRACE: Duration = Duration::from_secs(45);

/// A running relay.
#[derive(Debug)]
pub(crate) struct SmallRelay {
    pub(crate) url: String,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    faults: BTreeSet<Fault>,
    issuer: String,
    http: reqwest::Client,
    keys: tokio::sync::Mutex<Keys>,
    slots: Mutex<HashMap<String, Slot>>,
    connections: AtomicU64,
}

#[derive(Debug, Default)]
struct Keys {
    /// By their ids, in the order in which they were published.
    known: Vec<(String, VerifyingKey)>,
    fetched: Option<Instant>,
}

impl State {
    fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    fn grace(&self) -> Duration {
        let ignores_close = [Fault::CloseIgnored, Fault::CloseWhilePendingIgnored];
        match ignores_close.into_iter().any(|fault| self.has(fault)) {
            true => LONG_GRACE,
            false => GRACE,
        }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<String, Slot>> {
        self.slots.lock().unwrap()
    }
}

impl SmallRelay {
    /// `issuer` is where the suite's issuer will be.
    pub(crate) async fn start(issuer: &str, faults: &[Fault]) -> Self {
        let state = Arc::new(State {
            faults: faults.iter().copied().collect(),
            issuer: issuer.to_owned(),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            keys: tokio::sync::Mutex::default(),
            slots: Mutex::default(),
            connections: AtomicU64::new(1),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let mut app = Router::new().route("/relay", get(connection::open));
        if !state.has(Fault::NotAtRoot) {
            app = app.route("/", get(connection::open));
        }
        let below = state.has(Fault::BelowPath);
        let mut app = app.with_state(state);
        if below {
            // At the proxy's own root is something else.
            app = Router::new().nest("/edge", app);
        }
        let url = if below { format!("{url}/edge/relay") } else { url };
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, task }
    }
}

impl Drop for SmallRelay {
    fn drop(&mut self) {
        self.task.abort();
    }
}
