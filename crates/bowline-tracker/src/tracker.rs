//! The tracker as a whole: settings, bound address, upkeep, shutdown.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_federation::OwnKeys;
use bowline_federation::lookup::SystemLookup;
use bowline_net::trust::NoTlsConfig;
use bowline_net::{Door, DoorConfig, DoorError, listen};
use bowline_sbp::federation::gateway_id::BadBaseUrl;
use bowline_sbp::federation::{BaseUrl, Endpoints, Manifest, PreviousKey, Role};
use bowline_sbp::gateway_key::GatewayIdentity;
use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::announcer::Announcers;
use crate::config::TrackerConfig;
use crate::http;
use crate::registry::{Registry, RegistryOpenError};
use crate::shared::Shared;
use crate::threads::RegistryThreads;
use crate::throttles::Throttles;

/// How often what has ended is deleted.
const PURGE_EVERY: Duration = Duration::from_secs(60);
/// Announcements that are read and verified at once.
const ANNOUNCING: usize = 64;

/// Why a tracker did not start.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TrackerStartError {
    #[error(transparent)]
    Door(#[from] DoorError),
    #[error(transparent)]
    Registry(#[from] RegistryOpenError),
    #[error("it does not know its own address: {0}")]
    Url(#[from] BadBaseUrl),
    #[error("it cannot ask gateways for their keys: {0}")]
    Client(#[from] NoTlsConfig),
    #[error("the operating system gives no thread: {0}")]
    Thread(String),
}

impl From<std::io::Error> for TrackerStartError {
    fn from(error: std::io::Error) -> Self {
        Self::Thread(error.to_string())
    }
}

/// A tracker; see [`Tracker::bind`].
#[derive(Debug, Clone, Copy)]
pub struct Tracker;

impl Tracker {
    /// Opens the registry in `data` and binds the address. Nothing is served before
    /// [`BoundTracker::run`]. `previous` are the statements of older keys, after a rotation.
    pub async fn bind(
        config: TrackerConfig,
        data: &Path,
        identity: GatewayIdentity,
        previous: Vec<PreviousKey>,
    ) -> Result<BoundTracker, TrackerStartError> {
        let keys = Arc::new(OwnKeys::new(Arc::new(identity), previous));
        let stop = CancellationToken::new();
        let shared = open(config.clone(), data, Arc::clone(&keys), stop)?;
        let door = DoorConfig {
            address: config.listen,
            tls: config.tls,
            behind_proxy: config.behind_proxy,
            insecure: config.insecure,
        };
        let door = Door::open(door, config.limits.door()).await?;
        let url = match config.url {
            Some(url) => url,
            None => {
                let scheme = if door.is_tls() { "https" } else { "http" };
                format!("{scheme}://{}", listen::from_here(door.address())).parse()?
            }
        };
        let keys = keys.current();
        let manifest = Manifest {
            gateway_id: config.id,
            gateway_name: config.name,
            role: Role::Tracker,
            key: keys.identity.public(),
            endpoints: Endpoints::of_tracker(&url),
            url: url.clone(),
            issued_at: Timestamp::now().as_second(),
            previous: keys.previous.clone(),
        };
        let manifest = manifest.sign(&keys.identity).into();
        Ok(BoundTracker { door, url, manifest, shared: Arc::new(shared) })
    }
}

/// Opens the registry in `data`, and what asks gateways for their keys.
pub(crate) fn open(
    config: TrackerConfig,
    data: &Path,
    keys: Arc<OwnKeys>,
    stop: CancellationToken,
) -> Result<Shared, TrackerStartError> {
    let registry = Registry::open(data)?;
    let reader = || Ok::<_, TrackerStartError>(Registry::reader(data)?);
    let registry = RegistryThreads::start(registry, reader)?;
    let TrackerConfig { id, peers, only_peers, limits, .. } = config;
    let announcers = Announcers::new(peers, only_peers, limits.key_age, Arc::new(SystemLookup))?;
    Ok(Shared {
        id,
        keys,
        registry,
        announcers,
        announcing: Semaphore::new(ANNOUNCING),
        throttles: Throttles::new(&limits),
        limits,
        stop,
    })
}

/// A tracker that is bound to its address and not running yet.
#[derive(Debug)]
pub struct BoundTracker {
    door: Door,
    url: BaseUrl,
    manifest: Bytes,
    shared: Arc<Shared>,
}

impl BoundTracker {
    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.door.address()
    }

    /// Where gateways reach it, as its manifest says.
    pub fn url(&self) -> &BaseUrl {
        &self.url
    }

    /// Serves until `stop` resolves, then answers the open requests.
    pub async fn run(self, stop: impl Future) {
        let Self { door, manifest, shared, .. } = self;
        let _upkeep = AbortOnDropHandle::new(tokio::spawn(upkeep(Arc::clone(&shared))));
        let told = async {
            stop.await;
            shared.stop.cancel();
        };
        let serving = door.serve(http::router(Arc::clone(&shared), manifest), shared.stop.clone());
        let (connections, ()) = tokio::join!(serving, told);
        connections.ended(shared.limits.drain).await;
    }
}

/// Deletes what has ended, a little at a time.
pub(crate) async fn upkeep(shared: Arc<Shared>) {
    loop {
        let purge = |registry: &mut Registry| registry.purge(Timestamp::now().as_second());
        match shared.registry.change(purge).await {
            // There may be more.
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => tokio::time::sleep(PURGE_EVERY).await,
            Err(error) => {
                tracing::error!(%error, "records that have ended could not be deleted");
                tokio::time::sleep(PURGE_EVERY).await;
            }
        }
    }
}
