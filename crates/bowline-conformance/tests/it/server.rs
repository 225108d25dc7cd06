//! A small SBP server that keeps to what the suite checks, with switches that make it break one
//! requirement each. Everything is in memory; what "restarts" is decided by [`Server::restart`].

mod abroad;
mod adapted;
mod bundles;
mod exports;
mod family;
mod federated;
mod http;
mod imports;
mod rest;
mod sessions;
mod socket;
mod turns;
mod upstream;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bowline_conformance::Peer;
use bowline_conformance::keys::Identity;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};

use exports::Export;
use federated::Federation;
pub(crate) use sessions::Session;
use turns::Done;
use uuid::Uuid;

/// One thing that the server does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fault {
    MadeTimeless,
    OwnTokenIgnored,
    NoObject,
    NoLegacyPrompt,
    UnknownForbidden,
    /// What is stored is gone after a restart.
    InMemory,
    /// Turns that wait for a surface are gone after a restart.
    TetherInMemory,
    AgentHeaderIgnored,
    UnknownOptionRefused,
    SbpForwarded,
    NoTokenHeader,
    ModelRewritten,
    PassThroughRewritten,
    NoDone,
    EndsWithItsReader,
    HistoryReversed,
    EmptyIsComplete,
    HalfIsComplete,
    AnyFirstFrame,
    AnyToken,
    NoLevel,
    IndexFromOne,
    LiveBeforeAttached,
    ClearedOnSend,
    NeverConfirmed,
    OtherChunkId,
    ChunksForAll,
    DetachGoingAway,
    NeverSuspended,
    NoSnapshot,
    SuspendedRuns,
    AlwaysSuspended,
    UnknownFrameCloses,
    TurnsAtOnce,
    DetachLosesTurns,
    Undeclared,
    ResultsMixed,
    NamesDropped,
    DeviceGoneForgotten,
    ContextRefused,
    NoEcho,
    UnknownResultCloses,
    ErrorsDropped,
    CallersToolsDropped,
    ResentTwice,
    SilentKept,
    DroppedLiveLost,
    MidSentenceLost,
    /// A turn that a restart interrupted is not run again.
    InterruptedForgotten,
    NeverPings,
    WaitsUnbounded,
    PendingUntold,
    TetherAlways,
    JoinReplaces,
    OlderStays,
    AckIgnored,
    AnyLifetime,
    NoExpiry,
    BundleWithoutCosts,
    OtherHash,
    ImportKeepsAgent,
    ImportReversed,
    ImportKeepsModel,
    TokensReusable,
    AnySignature,
    NeverExpires,
    AnyBundle,
    ReuseConsumes,
    UnknownMemoryRefused,
    InspectConsumes,
    HandoffLeavesSource,
    HandoffForgetsMessage,
    ForkStepsLost,
    ForkForgets,
    NoForksInLineage,
    EndedTakesTurns,
    NoSchema,
    Unsigned,
    DeviceUntold,
    MarkdownForAll,
    AdaptedStored,
    SurfaceIdForgotten,
    DeviceWaitedForever,
    DeviceWaitedLong,
    NoBundleEndpoint,
    ManifestUnsigned,
    ClaimsSeven,
    OtherBundleGiven,
    NoFederationToken,
    AnyFederationToken,
    FederationTokensAgain,
    UnknownBundleFails,
    LongFederationTokens,
    RegistryUnsigned,
    TrackerProxies,
    AnnouncementForged,
    TokensForHome,
    ForeignStepsLost,
    ForeignForgets,
    ForeignReused,
    NoReservations,
    ForeignAnyBundle,
    ForeignAnySignature,
    ReadsEndless,
    FollowsRedirects,
    /// What is refused of another gateway is kept all the same.
    RefusedIsKept,
    EndedNotHandedOff,
    AttachBringsNothing,
    /// No fault: the names of the older version of the wire, and none of the newer.
    OlderNames,
    /// No fault: what is optional or recommended up to L3 is not there.
    OnlyRequired,
    /// No fault: idle and running sessions are both active, as in version 0.9.
    StatusActive,
    /// No fault: turns wait for a surface only after one has left.
    TetherAfterDetach,
    /// No fault: an answer over HTTP is read; the public suite's address puts turns into the Tether.
    TetherByHook,
    /// No fault: a session for every call.
    SessionsAlways,
    /// No fault: imports are by roaming tokens, not of bundles.
    TokensOnly,
    /// No fault: its gateways have federation tokens of another form, and the suite's are refused.
    OtherTokenForm,
    /// No fault: the manifest names a P-256 key.
    OtherKeyType,
    /// No fault: it has keys, and the suite has none.
    WantsKey,
    /// No fault: the first request of each kind is one too many, and is told when to come again.
    RateLimited,
    /// No fault: every request is one too many.
    AlwaysLimited,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    /// What the suite's restart command is: it asks by a file, and waits until that is gone.
    pub(crate) restart_command: String,
    tasks: Vec<JoinHandle<()>>,
    asks: PathBuf,
}

/// What all of it shares.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) faults: BTreeSet<Fault>,
    /// The base URL of the model.
    pub(crate) upstream: String,
    pub(crate) url: String,
    pub(crate) identity: Identity,
    /// Other gateways: ids and addresses.
    pub(crate) peers: HashMap<String, String>,
    pub(crate) http: reqwest::Client,
    pub(crate) federation: Mutex<Federation>,
    sessions: Mutex<HashMap<String, Session>>,
    exports: Mutex<HashMap<String, Export>>,
    /// Turns that have begun and not ended: a restart interrupts them.
    begun: Mutex<HashMap<Uuid, Begun>>,
}

/// A turn that has begun.
#[derive(Debug)]
struct Begun {
    session: String,
    body: Value,
    task: AbortHandle,
}

impl State {
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    pub(crate) fn sessions(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.sessions.lock().unwrap()
    }

    pub(crate) fn exports(&self) -> MutexGuard<'_, HashMap<String, Export>> {
        self.exports.lock().unwrap()
    }

    /// Begins a turn; `pieces` gets its text while it is made.
    pub(crate) fn begin(
        self: &Arc<Self>,
        session: &str,
        body: Value,
        pieces: mpsc::UnboundedSender<String>,
    ) -> JoinHandle<Option<Done>> {
        let (number, state) = (Uuid::new_v4(), Arc::clone(self));
        // Held until the turn is listed: it may end at once.
        let mut begun = self.begun.lock().unwrap();
        let turn = turns::run(Arc::clone(self), session.to_owned(), body.clone(), pieces);
        let task = tokio::spawn(async move {
            let done = turn.await;
            state.begun.lock().unwrap().remove(&number);
            done
        });
        let session = session.to_owned();
        begun.insert(number, Begun { session, body, task: task.abort_handle() });
        task
    }

    /// What a new process would find.
    fn restarted(self: &Arc<Self>) {
        let begun: Vec<_> = self.begun.lock().unwrap().drain().map(|(_, turn)| turn).collect();
        begun.iter().for_each(|turn| turn.task.abort());
        for session in self.sessions().values_mut() {
            session.surface = None;
            session.joined.clear();
            session.live = None;
            if self.has(Fault::TetherInMemory) {
                session.delivered = session.turns.len();
            }
            if self.has(Fault::InMemory) {
                session.messages.clear();
            }
        }
        if !self.has(Fault::InterruptedForgotten) {
            for turn in begun {
                // Nobody reads it.
                self.begin(&turn.session, turn.body, mpsc::unbounded_channel().0);
            }
        }
    }
}

impl Server {
    pub(crate) async fn start(upstream: String, peer: &Peer, faults: &[Fault]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let peers = peer.peers().into_iter().map(|(id, url)| (id.to_owned(), url));
        let state = Arc::new(State {
            faults: faults.iter().copied().collect(),
            upstream,
            url: url.clone(),
            identity: Identity::from_seed(
                Uuid::new_v4().simple().to_string().as_bytes().try_into().unwrap(),
            ),
            peers: peers.collect(),
            federation: Mutex::default(),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            sessions: Mutex::default(),
            exports: Mutex::default(),
            begun: Mutex::default(),
        });
        let asks = std::env::temp_dir().join(format!("restart-{}", uuid::Uuid::new_v4()));
        let file = asks.display().to_string();
        let app = http::routes(Arc::clone(&state));
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let restarting = tokio::spawn(restarts(asks.clone(), state));
        Self {
            url,
            restart_command: format!("touch {file}; while [ -e {file} ]; do sleep 0.05; done"),
            tasks: vec![serving, restarting],
            asks,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        let _ = std::fs::remove_file(&self.asks);
    }
}

/// Restarts whenever the file is there.
async fn restarts(asks: PathBuf, state: Arc<State>) {
    loop {
        if asks.exists() {
            state.restarted();
            std::fs::remove_file(&asks).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The text of a field, or nothing.
pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// The object without these members, if the server has the older names alone.
pub(crate) fn older(state: &State, mut object: Value, newer: &[&str]) -> Value {
    if let (true, Some(members)) = (state.has(Fault::OlderNames), object.as_object_mut()) {
        newer.iter().for_each(|name| drop(members.remove(*name)));
    }
    object
}

/// This server's gateway id.
pub(crate) const ID: &str = "small";
