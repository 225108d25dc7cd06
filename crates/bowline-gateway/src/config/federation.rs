//! Other gateways: whether this one is known to them, and what they may have (SBP-L6).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bowline_net::duration;
use bowline_sbp::federation::{Allow, BaseUrl, GatewayId};
use bowline_sbp::gateway_key::GatewayKey;
use bowline_tracker::TrackerConfig;
use serde::{Deserialize, Serialize};

/// What other gateways know of this one, and may have of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FederationConfig {
    /// Answers other gateways, and issues roaming tokens that they can verify. Takes `gateway_id`.
    pub enabled: bool,
    /// Is a tracker, too: other gateways announce their exports here, and look them up. Takes `enabled`, and a gateway
    /// that shares its store with no others. A tracker for everybody should be a process of its own.
    pub serve_registry: bool,
    /// The tracker's settings, with its folder. Without a folder there is no place for a registry.
    #[serde(skip)]
    pub registry: TrackerConfig,
    /// This gateway's id among the others. It stays the same when the address or the key changes.
    pub gateway_id: Option<GatewayId>,
    /// For people; the id if empty.
    pub gateway_name: String,
    /// Where other gateways reach this one. Without it: the address that it listens on.
    pub url: Option<BaseUrl>,
    /// What gateways may have that are not in `peers`.
    pub allow: Allow,
    /// How long a session is reserved for a gateway that imports it.
    #[serde(with = "duration")]
    pub reservation: Duration,
    /// How long a gateway that asks for a session waits for a running turn; then the turn is interrupted.
    #[serde(with = "duration")]
    pub turn_wait: Duration,
    /// How long after a session has come here the surfaces that were attached where it came from may attach. None
    /// may if it is zero.
    #[serde(with = "duration")]
    pub follow_for: Duration,
    /// Gateways that are known by their id.
    pub peers: BTreeMap<String, PeerConfig>,
    /// Trackers by their ids, in the order of these: asked for gateways that are not in `peers`, and told of
    /// exports that say so.
    pub trackers: BTreeMap<String, TrackerPeerConfig>,
    /// Domains whose SRV records `_sbp._tcp.<domain>` name gateways; asked after the trackers.
    pub domains: Vec<String>,
    /// Who is asked for these records; none: the name servers of this system.
    pub name_servers: Vec<SocketAddr>,
    /// How often trackers are told again. What they were told counts for three times as long.
    #[serde(with = "duration")]
    pub announce_every: Duration,
}

/// A gateway of the configuration. Only such ones may have private addresses.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PeerConfig {
    pub url: Option<BaseUrl>,
    /// Its public key, as `bowline identity show` prints it. Without it the first key that it shows is
    /// remembered.
    pub key: Option<String>,
    /// Which bundles it may fetch; without it as `federation.allow` says.
    pub allow: Option<Allow>,
    /// Whoever shows a roaming token of it may attach to its session here without any other credential; the session
    /// comes here and is the owner's.
    pub trusted: bool,
}

/// A tracker of the configuration. It may have a private address.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrackerPeerConfig {
    pub url: Option<BaseUrl>,
    /// Its public key, as `bowline tracker run --json` prints it. Without it the first key that it shows is
    /// remembered.
    pub key: Option<String>,
}

impl Default for FederationConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            serve_registry: false,
            registry: TrackerConfig::default(),
            gateway_id: None,
            gateway_name: String::new(),
            url: None,
            allow: Allow::default(),
            reservation: Duration::from_secs(120),
            turn_wait: Duration::from_secs(30),
            follow_for: Duration::from_secs(24 * 3600),
            peers: BTreeMap::new(),
            trackers: BTreeMap::new(),
            domains: Vec::new(),
            name_servers: Vec::new(),
            announce_every: Duration::from_secs(3600),
        }
    }
}

/// A setting of `federation` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFederation {
    #[error("federation takes `federation.gateway_id`, the id of this gateway (--gateway-id)")]
    NoId,
    #[error("federation takes `federation.url`, where other gateways reach this one")]
    NoUrl,
    #[error("`federation.serve_registry` takes `federation.enabled` (--federation)")]
    RegistryAlone,
    #[error("`federation.serve_registry` takes a folder for the registry")]
    NoFolder,
    #[error(
        "`federation.serve_registry` is for one gateway alone: each replica would have a registry of its \
         own, and know a part of what was announced"
    )]
    SharedRegistry,
    #[error("`federation.{0}`: {1}")]
    Peer(String, &'static str),
}

impl PeerConfig {
    /// Its id and key.
    pub(crate) fn checked(
        &self,
        name: &str,
    ) -> Result<(GatewayId, BaseUrl, Option<GatewayKey>), BadFederation> {
        checked(format!("peers.{name}"), name, self.url.as_ref(), self.key.as_deref())
    }
}

impl TrackerPeerConfig {
    /// Its id and key.
    pub(crate) fn checked(
        &self,
        name: &str,
    ) -> Result<(GatewayId, BaseUrl, Option<GatewayKey>), BadFederation> {
        checked(format!("trackers.{name}"), name, self.url.as_ref(), self.key.as_deref())
    }
}

fn checked(
    setting: String,
    name: &str,
    url: Option<&BaseUrl>,
    key: Option<&str>,
) -> Result<(GatewayId, BaseUrl, Option<GatewayKey>), BadFederation> {
    let bad = |why| BadFederation::Peer(setting.clone(), why);
    let id = name.parse().map_err(|_| bad("this is not the id of a gateway or tracker"))?;
    let url = url.cloned().ok_or_else(|| bad("it has no `url`"))?;
    let key = key.map(str::parse).transpose();
    Ok((id, url, key.map_err(|_| bad("its `key` is not the public key of a gateway"))?))
}
