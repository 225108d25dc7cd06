//! Builds, starts and stops a gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bowline_bus::{Bus, BusError, Memory};
use bowline_net::loopback::is_loopback;
use bowline_net::{Door, DoorError, Entrance};
use bowline_sbp::gateway_key::GatewayKey;
use bowline_sbp::session;
use bowline_store::Store;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::auth::{self, Access, BadKey};
use crate::config::Config;
use crate::config::mcp::BadServer;
use crate::devices::Devices;
use crate::engine::{ABANDONED, Deed, Engine, Keyring, Signed};
use crate::federation::{Federation, FederationError};
use crate::health::{self, Health};
use crate::http::guard::Guard;
use crate::http::{App, BadOrigins};
use crate::identity::Signer;
use crate::liveness::{self, KeepError, LocalSessions};
use crate::mcp::Servers;
use crate::model::{BadUpstream, Models};
use crate::router;
use crate::secrets::{BadSecrets, Sealing};
use crate::serve;
use crate::session::{Bounds, LiveSessions, Workers};
use crate::translate::{BadTranslator, Translation};
use crate::upkeep;

/// How often the metrics recorder's upkeep runs.
const UPKEEP: Duration = Duration::from_secs(5);
/// What is told once after an upgrade from a version whose tools did not ask.
const TOOLS_ASK: &str = "tools-ask";
/// How long an actor stays after its session became idle.
const LINGER: Duration = Duration::from_secs(30);

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Key(#[from] BadKey),
    #[error("cannot read the API keys in {path}: {reason}")]
    KeysFile { path: String, reason: String },
    #[error(transparent)]
    Upstream(#[from] BadUpstream),
    #[error(transparent)]
    Translate(#[from] BadTranslator),
    #[error(transparent)]
    Mcp(#[from] BadServer),
    #[error(transparent)]
    Origins(#[from] BadOrigins),
    #[error("{address} can be reached from other machines, and there is no API key")]
    Exposed { address: SocketAddr },
    #[error(
        "with --certify anybody may change any session, and {address} can be reached from other machines"
    )]
    CertifyExposed { address: SocketAddr },
    #[error(transparent)]
    Door(#[from] DoorError),
    #[error(transparent)]
    Federation(#[from] FederationError),
    #[error(transparent)]
    Secrets(#[from] BadSecrets),
    #[error(transparent)]
    Store(#[from] bowline_store::Error),
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error(transparent)]
    Lease(#[from] KeepError),
}

/// What a gateway holds for its clients. All zero once every client has disconnected and every turn
/// has ended: anything else is a leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AtWork {
    /// Sockets of surfaces, including those that are closing.
    pub surfaces: usize,
    /// Running and waiting turns.
    pub turns: usize,
    /// Sessions that are not idle: with a turn, a surface or a call.
    pub sessions: usize,
}

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    is_tls: bool,
    entrance: Entrance,
    app: Arc<App>,
    recovered: u64,
    stop: CancellationToken,
    task: JoinHandle<()>,
    uses: JoinHandle<()>,
    store: Arc<dyn Store>,
    upstreams: Vec<(String, String)>,
}

impl Gateway {
    /// Starts the gateway; `local_key` is the key of this machine's owner, `signer` signs what it
    /// exports. Returns when it is ready: actors for unfinished turns of an earlier process have been
    /// started by then (G13).
    pub async fn start(
        config: Config,
        store: Arc<dyn Store>,
        local_key: Option<&str>,
        signer: impl Into<Signer>,
    ) -> Result<Self, StartError> {
        Self::start_with(config, store, Arc::new(Memory::new()), local_key, signer).await
    }

    /// The same for one of several replicas, which share the store and the bus.
    pub async fn start_with(
        config: Config,
        store: Arc<dyn Store>,
        bus: Arc<dyn Bus>,
        local_key: Option<&str>,
        signer: impl Into<Signer>,
    ) -> Result<Self, StartError> {
        let mut keys = config.auth.api_keys.clone();
        if let Some(path) = &config.auth.api_keys_file {
            let text = std::fs::read_to_string(path).map_err(|error| StartError::KeysFile {
                path: path.display().to_string(),
                reason: error.to_string(),
            })?;
            let lines = text.lines().map(str::trim);
            keys.extend(lines.filter(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_owned));
        }
        let sealing = Sealing::prepare(&config.secrets, &*store).await?;
        let loopback = config.access.loopback;
        let access = Access::new(&keys, local_key, token_secret(&sealing, &*store).await?)?;
        let access = access.with_loopback(loopback, config.insecure).with_ttl(&config.tokens);
        // A user beside the owner, even a disabled one, closes it.
        if store.users().await?.len() > 1 {
            access.close();
        }
        let signer = signer.into();
        let is_stored = signer.is_stored();
        let own = signer.keys(&sealing, &*store).await?;
        let keys = Keyring::load(sealing, &*store).await?;
        let models = Models::new(&config)?;
        let translation = Translation::new(&config.translate, &models)?;
        let mcp = Servers::new(&config.mcp)?;
        let loopback = is_loopback(config.listen.ip());
        config.door().taken_from().map_err(DoorError::from)?;
        if !loopback && access.is_open() && !config.insecure {
            return Err(StartError::Exposed { address: config.listen });
        }
        if config.certify && (!loopback || !config.door().behind_proxy.is_empty()) {
            return Err(StartError::CertifyExposed { address: config.listen });
        }
        let guard = Guard::new(loopback, &config.http, access.is_open())?;
        let door = Door::open(config.door(), config.limits.door()).await?;
        let (address, is_tls) = (door.address(), door.is_tls());
        let entrance = door.entrance();

        let stop = CancellationToken::new();
        let upstreams = models.upstreams().map(|u| (u.name().to_owned(), u.address())).collect();
        let listens = format!("{}://{address}", if is_tls { "https" } else { "http" });
        let federation =
            Federation::new(&config.federation, &listens, Arc::clone(&own), Arc::clone(&store))?;
        let federation = federation.map(Arc::new);
        let keys = (keys, Signed { keys: own, is_stored, federation });
        let engine =
            Engine::new(Arc::clone(&store), models, mcp, access, keys, &config, stop.clone());
        let engine = Arc::new(engine);
        let bounds = Bounds {
            session: session::SessionLimits {
                waiting_turns: config.limits.waiting_turns,
                surfaces: config.limits.surfaces,
                images: config.limits.tool_images,
                ..session::SessionLimits::default()
            },
            history_memory: config.limits.history_memory,
            linger: LINGER,
            retry_window: config.limits.retry_window,
        };
        let me = session::ReplicaId(Uuid::new_v4());
        let health = Health::new(Some(bus.health()));
        tokio::spawn(stop.clone().run_until_cancelled_owned(health::log_changes(bus.health())));
        let workers: Arc<dyn Workers> = Arc::<Engine>::clone(&engine);
        let sessions =
            LiveSessions::new(me, Arc::clone(&store), workers, bounds, bus, stop.clone());
        sessions.listen().await?;
        let begun = Instant::now();
        store.register(me).await?;
        let lease = CancellationToken::new();
        let local: Arc<dyn LocalSessions> = Arc::new(Arc::clone(&sessions));
        let gate = sessions.gate.clone();
        liveness::keep(me, begun, Arc::clone(&store), local, gate, lease.clone()).await?;
        let recovered = sessions.recover().await?;
        let memory = jiff::SignedDuration::try_from(config.limits.key_memory).unwrap_or_default();
        tokio::spawn(upkeep::forget_keys(Arc::clone(&store), memory, stop.clone()));
        tokio::spawn(upkeep::keep_index(Arc::clone(&store), stop.clone()));
        if store.take_notice(TOOLS_ASK).await? {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move { engine.tell_what_asks().await });
        }
        tokio::spawn(upkeep::settle(Arc::clone(&engine), stop.clone()));
        tokio::spawn(upkeep::forget_audit(Arc::clone(&store), config.audit.keep, stop.clone()));
        // Another replica may be carrying the younger ones out, for clients that wait there.
        let since = match store.is_shared() {
            true => ABANDONED,
            false => jiff::SignedDuration::ZERO,
        };
        engine.resume_migrations(since).await?;
        if let Some(federation) = &engine.federation {
            tokio::spawn(upkeep::resume_migrations(Arc::clone(&engine), stop.clone()));
            federation.announce(&engine.store, &stop);
            if let Some(registry) = federation.registry.clone() {
                tokio::spawn(stop.clone().run_until_cancelled_owned(registry.upkeep()));
            }
        }
        engine.audit.gateway_did(None, Deed::Start, env!("CARGO_PKG_VERSION"));
        store.settle().await?;
        let uses = tokio::spawn(upkeep::keep_uses(Arc::clone(&engine), stop.clone()));
        if store.is_shared() {
            tokio::spawn(upkeep::follow_others(
                Arc::clone(&engine),
                Arc::clone(&sessions),
                stop.clone(),
            ));
        }

        let app = Arc::new(App {
            engine,
            sessions,
            mode: config.sessions.mode,
            default_model: config.default_model.clone(),
            wire_version: config.wire_version,
            certify: config.certify,
            ready: AtomicBool::new(false),
            stop: stop.clone(),
            surfaces: TaskTracker::new(),
            metrics: metrics_handle(),
            health,
            translation,
        });
        let router = router::router(Arc::clone(&app), guard);
        app.ready.store(true, Ordering::Release);
        let task = tokio::spawn(serve::serve(door, router, Arc::clone(&app), lease));
        Ok(Self { address, is_tls, entrance, app, recovered, stop, task, uses, store, upstreams })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as a URL.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.address)
    }

    /// How many unfinished turns of an earlier process it recovered.
    pub fn recovered(&self) -> u64 {
        self.recovered
    }

    /// Names and addresses of the configured upstreams.
    pub fn upstreams(&self) -> &[(String, String)] {
        &self.upstreams
    }

    /// Whether it needs no API key.
    pub fn is_open(&self) -> bool {
        self.app.engine.access.is_open()
    }

    /// The public key with which it signs.
    pub fn identity(&self) -> GatewayKey {
        self.app.engine.signer.public()
    }

    /// Its paired devices.
    pub fn devices(&self) -> Devices {
        Devices::new(Arc::clone(&self.app.engine))
    }

    /// The way in for streams of paired devices.
    pub fn entrance(&self) -> Entrance {
        self.entrance.clone()
    }

    /// What it holds for its clients now.
    pub fn at_work(&self) -> AtWork {
        let (turns, sessions) = self.app.sessions.at_work();
        AtWork { surfaces: self.app.surfaces.len(), turns, sessions }
    }

    /// Its id among the replicas.
    pub fn replica(&self) -> session::ReplicaId {
        self.app.sessions.me()
    }

    /// Another replica was declared dead: its surfaces are reported as gone, and whoever waits for it
    /// asks the next owner.
    pub fn replica_died(&self, replica: session::ReplicaId) {
        self.app.sessions.edge_dead(replica);
    }

    /// This replica was declared dead: it writes nothing more, closes its surfaces with 1012, and goes
    /// on under a new id.
    pub async fn start_anew(&self) -> Result<(), StartError> {
        let new = self.app.sessions.abandon_all().await?;
        Ok(self.store.register(new).await?)
    }

    /// Resolves if the store fails for good: the process should exit.
    pub async fn failed(&self) -> bowline_store::Error {
        self.store.failed().await
    }

    /// Stops gracefully; see `limits.drain` for how long that may take.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
        let _ = self.uses.await;
        let engine = &self.app.engine;
        engine.audit.flush();
        engine.audit.gateway_did(None, Deed::Stop, env!("CARGO_PKG_VERSION"));
        if let Err(error) = engine.store.settle().await {
            tracing::warn!(%error, "cannot write what was used and done");
        }
    }
}

/// What session tokens are derived from.
async fn token_secret(sealing: &Sealing, store: &dyn Store) -> Result<[u8; 32], StartError> {
    const NAME: &str = "session-tokens";
    let stored = store.secret(NAME, sealing.seal(NAME, auth::random())).await?;
    Ok(sealing.open(NAME, &stored).ok_or(BadSecrets::Unset)?)
}

/// Runs the recorder's upkeep periodically, which folds samples of histograms into buckets. Without
/// it, every sample is kept in memory until the next scrape.
fn keep_up(every: Duration, fold: impl Fn() + Send + 'static) {
    let upkeep = move || {
        loop {
            std::thread::sleep(every);
            fold();
        }
    };
    if let Err(error) = std::thread::Builder::new().name("bowline-metrics".into()).spawn(upkeep) {
        tracing::warn!(%error, "cannot start the metrics upkeep thread; memory grows until metrics are scraped");
    }
}

/// One recorder per process, made by the first gateway.
fn metrics_handle() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let recorder = PrometheusBuilder::new().build_recorder();
            let handle = recorder.handle();
            let folded = handle.clone();
            keep_up(UPKEEP, move || folded.run_upkeep());
            // If the embedding program has installed a recorder, ours stays empty.
            let _ = metrics::set_global_recorder(recorder);
            handle
        })
        .clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g11_measurements_are_folded_although_nobody_scrapes() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let (folded, times) = std::sync::mpsc::channel();
        keep_up(Duration::from_millis(1), {
            let handle = handle.clone();
            move || {
                handle.run_upkeep();
                let _ = folded.send(());
            }
        });
        for _ in 0..3 {
            times.recv_timeout(Duration::from_secs(30)).expect("again and again");
        }
    }
}
