//! The relay as a whole: configuration, bound address, shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bowline_net::{Door, DoorConfig, DoorError};
use bowline_sbrp::id::DaemonId;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::config::RelayConfig;
use super::connection_rate::ConnectionRate;
use super::daemon_table::DaemonTable;
use super::epochs::Epochs;
use super::issuer::{BadIssuer, Issuer};
use super::keys::Keyring;
use super::local_control::LocalControl;
use super::meters::Meters;
use super::refusals::RefusalLog;
use super::revocations::Revocations;
use super::{handover, serve, session_age};

/// Why a relay did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelayStartError {
    #[error(transparent)]
    Issuer(#[from] BadIssuer),
    #[error(transparent)]
    Door(#[from] DoorError),
}

impl RelayStartError {
    /// Advice to the operator on how to fix it.
    pub fn hint(&self) -> String {
        match self {
            Self::Issuer(_) => {
                "give the control plane's address, such as --issuer https://control.example".into()
            }
            Self::Door(error) => error.hint("127.0.0.1:8090"),
        }
    }
}

/// What all connections of a relay share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: RelayConfig,
    pub(crate) keys: Arc<Keyring>,
    pub(crate) revocations: Arc<Revocations>,
    pub(crate) daemons: Arc<DaemonTable>,
    pub(crate) epochs: Epochs,
    pub(crate) meters: Arc<Meters>,
    pub(crate) refusals: RefusalLog,
    pub(crate) stopping: AtomicBool,
    pub(crate) quit: CancellationToken,
    /// Tasks of connections that were upgraded to WebSocket.
    pub(crate) connections: TaskTracker,
    pub(crate) connection_rate: ConnectionRate,
    /// The control plane of the same process, if there is one.
    pub(crate) local_control: Option<LocalControl>,
}

impl Shared {
    pub(crate) fn new(config: RelayConfig, issuer: Issuer) -> Self {
        let limits = &config.limits;
        let connection_rate = ConnectionRate::new(
            limits.rate_connections,
            limits.rate_connections_ip,
            Instant::now(),
        );
        Self {
            keys: Arc::new(keyring(&config.issuer, &config, issuer.clone())),
            revocations: Arc::new(Revocations::new(&config, issuer)),
            daemons: Arc::new(DaemonTable::new(config.grace)),
            epochs: Epochs::default(),
            meters: Arc::default(),
            refusals: RefusalLog::default(),
            stopping: AtomicBool::new(false),
            quit: CancellationToken::new(),
            connections: TaskTracker::new(),
            connection_rate,
            local_control: None,
            config,
        }
    }

    pub(crate) fn why_not_ready(&self) -> Option<&'static str> {
        if self.stopping.load(Ordering::Acquire) {
            return Some("stopping");
        }
        (!self.keys.is_ready()).then_some("the issuer's keys have not been fetched yet")
    }
}

fn keyring(name: &str, config: &RelayConfig, issuer: Issuer) -> Keyring {
    Keyring::new(name, config.region.clone(), &config.keys, issuer)
}

/// A relay; see [`Relay::bind`].
#[derive(Debug, Clone, Copy)]
pub struct Relay;

impl Relay {
    /// Checks the settings and binds the address. Nothing is served before [`BoundRelay::run`].
    pub async fn bind(config: RelayConfig) -> Result<BoundRelay, RelayStartError> {
        let issuer = Issuer::new(&config.issuer, &config.keys)?;
        let door = DoorConfig {
            address: config.listen,
            tls: config.tls.clone(),
            behind_proxy: config.behind_proxy.clone(),
            insecure: config.insecure,
        };
        let door = Door::open(door, config.limits.door()).await?;
        Ok(BoundRelay { door, shared: Arc::new(Shared::new(config, issuer)) })
    }
}

/// A relay that is bound to its address and not running yet.
#[derive(Debug)]
pub struct BoundRelay {
    door: Door,
    shared: Arc<Shared>,
}

impl BoundRelay {
    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.door.address()
    }

    /// Whether it terminates TLS itself.
    pub fn is_tls(&self) -> bool {
        self.door.is_tls()
    }

    /// Serves a control plane at the same address and accepts its tokens: `router` answers requests
    /// that are not for the relay, and publishes the keys and the list of revoked daemons.
    pub fn with_control(mut self, issuer: &str, router: axum::Router) -> Self {
        let shared = Arc::get_mut(&mut self.shared).expect("nobody shares it before it runs");
        let local_control = LocalControl::new(router);
        let local = Issuer::Local(local_control.clone());
        shared.keys = Arc::new(keyring(issuer, &shared.config, local.clone()));
        shared.revocations = Arc::new(Revocations::new(&shared.config, local));
        shared.local_control = Some(local_control);
        self
    }

    /// A function that reports whether a daemon is connected, for as long as the relay runs.
    pub fn presence(&self) -> impl Fn(&DaemonId) -> bool + Send + Sync + use<> {
        let daemons = Arc::clone(&self.shared.daemons);
        move |daemon| daemons.is_online(daemon)
    }

    /// A function that tells how many WebSocket connections are open, for as long as the relay runs.
    pub fn open_connections(&self) -> impl Fn() -> usize + Send + Sync + use<> {
        let connections = self.shared.connections.clone();
        move || connections.len()
    }

    /// How long a session is kept for a daemon that has disconnected.
    pub fn grace(&self) -> std::time::Duration {
        self.shared.config.grace
    }

    /// Serves until `stop` resolves, then closes all connections with 1012 (service restart), so
    /// that they reconnect, and returns when they have closed, or after `limits.drain`.
    pub async fn run(self, stop: impl Future) {
        let Shared { keys, revocations, daemons, meters, .. } = &*self.shared;
        let watching = Arc::clone(revocations).watch(Arc::clone(daemons), Arc::clone(meters));
        let _keys = AbortOnDropHandle::new(tokio::spawn(Arc::clone(keys).keep_fresh()));
        let _revocations = AbortOnDropHandle::new(tokio::spawn(watching));
        let age = self.shared.config.limits.session_age;
        let ending = session_age::end_aged(age, Arc::clone(daemons), Arc::clone(meters));
        let _ending = AbortOnDropHandle::new(tokio::spawn(ending));
        let handing_over = handover::hand_over(Arc::clone(&self.shared));
        let _handing_over = AbortOnDropHandle::new(tokio::spawn(handing_over));
        serve::serve(self.door, self.shared, stop).await;
    }
}
