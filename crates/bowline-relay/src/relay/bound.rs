//! A relay as a whole: put together, bound to its address, run.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bowline_sbrp::id::DaemonId;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::annex::Annex;
use super::config::Config;
use super::harbour::Harbour;
use super::issuer::{BadIssuer, Issuer};
use super::keys::Keyring;
use super::meters::Meters;
use super::rate::Arrivals;
use super::revocations::Revocations;
use super::serve;
use super::tls::{BadTls, Certificate};
use crate::pacing;

/// Why a relay did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Issuer(#[from] BadIssuer),
    #[error(transparent)]
    Tls(#[from] BadTls),
    #[error("{address} can be reached from outside, and there is no certificate")]
    Exposed { address: SocketAddr },
    #[error("the address {address} is already in use")]
    AddressInUse { address: SocketAddr },
    #[error("cannot listen on {address}: {reason}")]
    Listen { address: SocketAddr, reason: String },
}

impl StartError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Issuer(_) => {
                "give the control plane's address, such as --issuer https://control.example".into()
            }
            Self::Tls(BadTls::File { .. }) => "check --tls-cert and --tls-key".into(),
            Self::Tls(_) => {
                "give the certificate chain and its key as PEM files that belong together".into()
            }
            Self::Exposed { .. } => "add --tls-cert and --tls-key, listen on 127.0.0.1, or say \
                 --insecure-plain behind a proxy that ends TLS"
                .into(),
            Self::AddressInUse { address } => {
                let next = address.port().checked_add(1).unwrap_or(8090);
                format!("another program listens there; try --listen {}:{next}", address.ip())
            }
            Self::Listen { .. } => "try --listen 127.0.0.1:8090".into(),
        }
    }
}

/// What all connections of a relay share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) keys: Arc<Keyring>,
    pub(crate) revocations: Arc<Revocations>,
    pub(crate) certificate: Option<Arc<Certificate>>,
    pub(crate) harbour: Arc<Harbour>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) stopping: AtomicBool,
    pub(crate) quit: CancellationToken,
    /// Connections as long as they are HTTP.
    pub(crate) requests: TaskTracker,
    /// Connections since they are WebSockets.
    pub(crate) connections: TaskTracker,
    arrivals: Mutex<Arrivals<IpAddr>>,
    /// What is served here besides.
    pub(crate) annex: Option<Annex>,
}

impl Shared {
    pub(crate) fn new(config: Config, issuer: Issuer, certificate: Option<Certificate>) -> Self {
        let limits = &config.limits;
        let arrivals =
            Arrivals::new(limits.rate_connections, limits.rate_connections_ip, Instant::now());
        Self {
            keys: Arc::new(keyring(&config.issuer, &config, issuer.clone())),
            revocations: Arc::new(Revocations::new(&config.keys, issuer)),
            certificate: certificate.map(Arc::new),
            harbour: Arc::new(Harbour::new(config.grace)),
            meters: Arc::default(),
            stopping: AtomicBool::new(false),
            quit: CancellationToken::new(),
            requests: TaskTracker::new(),
            connections: TaskTracker::new(),
            arrivals: Mutex::new(arrivals),
            annex: None,
            config,
        }
    }

    /// Whether one more connection may come from there now.
    pub(crate) fn may_come(&self, from: IpAddr, now: Instant) -> bool {
        let judged = match from.to_canonical() {
            own if own.is_loopback() => None,
            // One customer's network, not one address: it has more of those than we remember.
            IpAddr::V6(from) => {
                Some(Ipv6Addr::from_bits(from.to_bits() & !u128::from(u64::MAX)).into())
            }
            from => Some(from),
        };
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).admit(judged, now)
    }

    pub(crate) fn why_not_ready(&self) -> Option<&'static str> {
        if self.stopping.load(Ordering::Acquire) {
            return Some("stopping");
        }
        (!self.keys.is_ready()).then_some("the issuer's keys have not been fetched yet")
    }
}

fn keyring(name: &str, config: &Config, issuer: Issuer) -> Keyring {
    Keyring::new(name, config.region.clone(), &config.keys, issuer)
}

/// A relay; see [`Relay::bind`].
#[derive(Debug, Clone, Copy)]
pub struct Relay;

impl Relay {
    /// Checks the settings and takes the address. Nothing is served before [`Bound::run`].
    pub async fn bind(config: Config) -> Result<Bound, StartError> {
        let issuer = Issuer::new(&config.issuer, &config.keys)?;
        let certificate = config.tls.clone().map(Certificate::load).transpose()?;
        let address = config.listen;
        if certificate.is_none() && !address.ip().is_loopback() && !config.insecure_plain {
            return Err(StartError::Exposed { address });
        }
        let listener = TcpListener::bind(address).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => StartError::AddressInUse { address },
            _ => StartError::Listen { address, reason: error.to_string() },
        })?;
        pacing::spare_loopback(&listener, address.ip());
        let address = listener.local_addr().unwrap_or(address);
        Ok(Bound { address, listener, shared: Arc::new(Shared::new(config, issuer, certificate)) })
    }
}

/// A relay that has its address and waits to be run.
#[derive(Debug)]
pub struct Bound {
    address: SocketAddr,
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Bound {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Whether it speaks TLS itself.
    pub fn is_tls(&self) -> bool {
        self.shared.certificate.is_some()
    }

    /// Serves a control plane at the same address, and takes its tokens: `router` answers what is
    /// none of the relay's, and what it publishes is what counts.
    pub fn beside(mut self, issuer: &str, router: axum::Router) -> Self {
        let shared = Arc::get_mut(&mut self.shared).expect("nobody shares it before it runs");
        let annex = Annex::new(router);
        let beside = Issuer::Beside(annex.clone());
        shared.keys = Arc::new(keyring(issuer, &shared.config, beside.clone()));
        shared.revocations = Arc::new(Revocations::new(&shared.config.keys, beside));
        shared.annex = Some(annex);
        self
    }

    /// Tells whether a daemon is connected, for as long as the relay runs.
    pub fn presence(&self) -> impl Fn(&DaemonId) -> bool + Send + Sync + use<> {
        let harbour = Arc::clone(&self.shared.harbour);
        move |daemon| harbour.is_online(daemon)
    }

    /// Serves until `stop` resolves, then tells all connections to come back (1012) and returns
    /// when they have ended, or after `limits.drain`.
    pub async fn run(self, stop: impl Future) {
        let Shared { keys, revocations, harbour, meters, .. } = &*self.shared;
        let watching = Arc::clone(revocations).watch(Arc::clone(harbour), Arc::clone(meters));
        let mut helpers = vec![
            Helper(tokio::spawn(Arc::clone(keys).keep_fresh())),
            Helper(tokio::spawn(watching)),
        ];
        if let Some(certificate) = &self.shared.certificate {
            helpers.push(Helper(tokio::spawn(Arc::clone(certificate).watch())));
        }
        serve::serve(self.listener, self.shared, stop).await;
        drop(helpers);
    }
}

/// A task that ends with the relay.
#[derive(Debug)]
struct Helper(JoinHandle<()>);

impl Drop for Helper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbrp_relay_07_addresses_of_one_network_share_a_limit() {
        let mut config = Config::default();
        config.limits.rate_connections_ip = 1;
        let issuer = Issuer::new(&config.issuer, &config.keys).unwrap();
        let shared = Shared::new(config, issuer, None);
        let now = Instant::now();
        for (from, admitted) in [
            ("203.0.113.1", true),
            ("203.0.113.1", false),
            ("::ffff:203.0.113.1", false),
            ("203.0.113.2", true),
            ("2001:db8:1:2::1", true),
            ("2001:db8:1:2:ffff::2", false),
            ("2001:db8:1:3::1", true),
            ("127.0.0.1", true),
            ("127.0.0.1", true),
            ("::1", true),
            ("::1", true),
        ] {
            assert_eq!(shared.may_come(from.parse().unwrap(), now), admitted, "{from}");
        }
    }
}
