//! This gateway among others: its manifest, whose tokens it accepts, and what they may have (SBP-L6).
//!
//! The asking side is the crate `bowline-federation`; here is the side that is asked. Who asks is known by
//! a token that it signed for this one request ([`asking`]).
//!
//! Invariant: a peer that may have nothing learns nothing.

mod announcing;
mod asking;
mod giving;
mod key_fetches;
mod known;
mod moving;
mod pins;
mod waiting;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bowline_federation::srv::{SrvError, SrvTarget};
use bowline_federation::{
    Credentials, Discovery, DnsSrv, KeySet, OwnKeys, Peers, SrvLookup, StaticPeer, SystemLookup,
};
use bowline_sbp::federation::{Allow, BaseUrl, Endpoints, GatewayId, Manifest, Role};
use bowline_store::Store;
use bowline_tracker::{MountedRegistry, TrackerStartError};
use jiff::SignedDuration;
use tokio::sync::watch;

pub(crate) use self::asking::AskingGateway;
pub(crate) use self::giving::GivenBundle;
use self::giving::Giving;
use self::key_fetches::KeyFetches;
pub(crate) use self::moving::Moving;
use self::pins::StoredPins;
use self::waiting::Waiting;
use crate::clock;
use crate::config::{BadFederation, FederationConfig, TrackerPeerConfig};

/// Why a gateway cannot take part in a federation.
#[derive(Debug, thiserror::Error)]
pub enum FederationError {
    #[error(transparent)]
    Config(#[from] BadFederation),
    #[error(transparent)]
    Tls(#[from] bowline_net::trust::NoTlsConfig),
    #[error("`federation.domains` needs DNS: {0}")]
    Dns(#[from] SrvError),
    #[error("the registry cannot be kept: {0}")]
    Registry(#[from] TrackerStartError),
}

impl FederationError {
    /// Whether `federation.serve_registry` is at fault.
    pub fn is_of_registry(&self) -> bool {
        use BadFederation::{NoFolder, RegistryAlone, SharedRegistry};
        matches!(self, Self::Registry(_) | Self::Config(NoFolder | RegistryAlone | SharedRegistry))
    }

    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Config(BadFederation::SharedRegistry) => {
                "run `bowline tracker run` beside the replicas".into()
            }
            Self::Registry(_) => {
                "check the disk and the data folder; if tracker.db is damaged, remove it: gateways announce \
                 again"
                    .into()
            }
            _ => "`bowline help federation` says what it takes".into(),
        }
    }
}

/// The federation, as this gateway takes part in it.
#[derive(Debug)]
pub(crate) struct Federation {
    pub(crate) peers: Arc<Peers>,
    pub(crate) discovery: Discovery,
    key_fetches: KeyFetches,
    /// Bundles that are given to others now.
    pub(crate) giving: Giving,
    /// Sessions that come here, by this process.
    pub(crate) moving: Moving,
    announce_every: Duration,
    /// Changes when there may be something that trackers are to be told.
    exports: watch::Sender<()>,
    name: String,
    /// What it is as a tracker; none if it is none.
    pub(crate) registry: Option<MountedRegistry>,
    allow: HashMap<GatewayId, Allow>,
    others: Allow,
    /// Whose sessions come here with a roaming token alone.
    trusted: HashSet<GatewayId>,
    /// How long the surfaces of a session that came here may follow it.
    pub(crate) follow_for: SignedDuration,
    /// How long a session is reserved.
    pub(crate) reservation: SignedDuration,
    /// Made at most once a second: anybody may ask for it.
    manifest: Mutex<Option<(i64, Arc<str>)>>,
    /// Who waits for sessions to rest.
    pub(crate) waiting: Waiting,
}

impl Federation {
    /// None if it is not enabled. `listens`: the URL of the address that the gateway listens on.
    pub(crate) fn new(
        config: &FederationConfig,
        listens: &str,
        keys: Arc<OwnKeys>,
        store: Arc<dyn Store>,
    ) -> Result<Option<Self>, FederationError> {
        match (config.enabled, config.serve_registry) {
            (false, true) => return Err(BadFederation::RegistryAlone.into()),
            (false, false) => return Ok(None),
            // Before anything is made on disk.
            (true, true) if store.is_shared() => return Err(BadFederation::SharedRegistry.into()),
            (true, _) => {}
        }
        let id = config.gateway_id.clone().ok_or(BadFederation::NoId)?;
        let url: BaseUrl = match &config.url {
            Some(url) => url.clone(),
            None => listens.parse().map_err(|_| BadFederation::NoUrl)?,
        };
        let (mut named, mut allow, mut trusted) = (Vec::new(), HashMap::new(), HashSet::new());
        for (name, peer) in &config.peers {
            let (id, url, key) = peer.checked(name)?;
            allow.extend(peer.allow.map(|allow| (id.clone(), allow)));
            trusted.extend(peer.trusted.then(|| id.clone()));
            named.push(StaticPeer { id, url, key });
        }
        let name = match config.gateway_name.as_str() {
            "" => id.to_string(),
            name => name.to_owned(),
        };
        let registry = match config.serve_registry {
            true => Some(registry(config, &named, &id, &keys)?),
            false => None,
        };
        let me = Credentials { id, url, keys };
        let mut known: HashSet<_> = named.iter().map(|peer| peer.id.clone()).collect();
        known.extend(config.trackers.keys().filter_map(|name| name.parse::<GatewayId>().ok()));
        let pins = Arc::new(StoredPins::new(store, known));
        let trackers = trackers(config)?;
        let peers = Peers::new(me, named, pins, Arc::new(SystemLookup))?;
        let peers = Arc::new(peers.with_trackers(trackers.clone()));
        Ok(Some(Self {
            discovery: discovery(config, Arc::clone(&peers), trackers)?,
            peers,
            key_fetches: KeyFetches::new(),
            giving: Giving::default(),
            moving: Moving::default(),
            announce_every: config.announce_every,
            exports: watch::Sender::new(()),
            name,
            registry,
            allow,
            others: config.allow,
            trusted,
            follow_for: config.follow_for.try_into().unwrap_or(SignedDuration::MAX),
            reservation: config.reservation.try_into().unwrap_or(SignedDuration::from_mins(2)),
            manifest: Mutex::default(),
            waiting: Waiting::new(config.turn_wait),
        }))
    }

    pub(crate) fn me(&self) -> &Credentials {
        self.peers.me()
    }

    /// The manifest, signed now (SBP-L6-01).
    pub(crate) fn manifest(&self) -> Arc<str> {
        let now = clock::now().as_second();
        let mut kept = self.manifest.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((at, text)) if *at == now => Arc::clone(text),
            _ => {
                let keys = self.me().keys.current();
                let text: Arc<str> = self.made(&keys, now).sign(&keys.identity).into();
                *kept = Some((now, Arc::clone(&text)));
                text
            }
        }
    }

    fn made(&self, keys: &KeySet, issued_at: i64) -> Manifest {
        let Credentials { id, url, .. } = self.me();
        let (role, endpoints) = match &self.registry {
            Some(_) => (Role::Both, Endpoints::of_both(url)),
            None => (Role::Gateway, Endpoints::of_gateway(url)),
        };
        Manifest {
            gateway_id: id.clone(),
            gateway_name: self.name.clone(),
            role,
            key: keys.identity.public(),
            url: url.clone(),
            endpoints,
            issued_at,
            previous: keys.previous.clone(),
        }
    }

    /// What a peer may have.
    pub(crate) fn allows(&self, peer: &GatewayId) -> Allow {
        self.allow.get(peer).copied().unwrap_or(self.others)
    }

    /// Whether that gateway may take sessions.
    pub(crate) fn may_reserve(&self, peer: &GatewayId) -> bool {
        self.allows(peer) != Allow::None
    }

    /// Whether a roaming token of that gateway is enough to take its session.
    pub(crate) fn trusts(&self, peer: &GatewayId) -> bool {
        self.trusted.contains(peer)
    }
}

/// The registry of a gateway that is a tracker, too. Who is named as a peer is asked for its key at that address.
fn registry(
    config: &FederationConfig,
    named: &[StaticPeer],
    id: &GatewayId,
    keys: &Arc<OwnKeys>,
) -> Result<MountedRegistry, FederationError> {
    let mut settings = config.registry.clone();
    let data = settings.data.take().ok_or(BadFederation::NoFolder)?;
    settings.peers.extend(named.iter().map(|peer| (peer.id.clone(), peer.url.clone())));
    Ok(MountedRegistry::open(settings, &data, id.clone(), Arc::clone(keys))?)
}

fn trackers(config: &FederationConfig) -> Result<Vec<StaticPeer>, BadFederation> {
    let tracker = |(name, tracker): (&String, &TrackerPeerConfig)| {
        let (id, url, key) = tracker.checked(name)?;
        Ok(StaticPeer { id, url, key })
    };
    config.trackers.iter().map(tracker).collect()
}

/// Where others are looked for.
fn discovery(
    config: &FederationConfig,
    peers: Arc<Peers>,
    trackers: Vec<StaticPeer>,
) -> Result<Discovery, FederationError> {
    let dns: Arc<dyn SrvLookup> = match config.domains.is_empty() {
        true => Arc::new(NoDns),
        false if config.name_servers.is_empty() => Arc::new(DnsSrv::system()?),
        false => Arc::new(DnsSrv::servers(&config.name_servers)?),
    };
    Ok(Discovery { peers, trackers, dns, domains: config.domains.clone() })
}

/// For a gateway that asks no domain.
#[derive(Debug)]
struct NoDns;

#[async_trait]
impl SrvLookup for NoDns {
    async fn records(&self, _: &str) -> Result<Vec<SrvTarget>, SrvError> {
        Ok(Vec::new())
    }
}
