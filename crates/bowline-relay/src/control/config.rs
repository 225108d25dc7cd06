//! The settings of a control plane, and all its limits (G11).

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use bowline_net::DoorLimits;
use bowline_net::rate::Rate;

use crate::MetricsAccess;

/// The lifetime of a client's session token, in seconds: it is used at once or not at all.
pub(super) const SESSION_TTL: u64 = 120;
const SHORTEST_PRESENCE: Duration = Duration::from_secs(60);
const LONGEST_PRESENCE: Duration = Duration::from_secs(24 * 3600);

/// The settings of one control plane.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// The folder of the registry; created if it is missing. Only its owner may have access.
    pub data: PathBuf,
    /// The `iss` of tokens; relays fetch the key set below this URL. Without a trailing slash.
    pub issuer: String,
    /// Where daemons and clients connect: `wss://host/relay`.
    pub relay_url: Url,
    /// The region of that relay, which tokens then name. None by default.
    pub region: Option<String>,
    /// The lifetime of a presence token, one minute to one day; one hour by default. For that long
    /// a revoked daemon may reconnect to a relay that cannot fetch the revocation list.
    pub presence_ttl: Duration,
    /// Who may read the metrics of a control plane without a relay; by default its own machine.
    pub metrics: MetricsAccess,
    pub limits: ControlLimits,
}

/// Limits on sizes, counts, durations and rates.
#[derive(Debug, Clone)]
pub struct ControlLimits {
    /// The largest request head, in bytes.
    pub request_head: usize,
    /// The largest request body, in bytes.
    pub request_body: usize,
    /// The largest body that sets a daemon's devices, in bytes: 256 of them fit in.
    pub device_set_body: usize,
    /// How long a request head may take to arrive.
    pub header_timeout: Duration,
    /// How long a connection may be idle between two requests; 0: it is closed after each response.
    pub keep_alive: Duration,
    /// How long a response goes on for a client that has closed its sending side: it may wait for
    /// the answer, or be gone.
    pub half_closed: Duration,
    /// How long a request body may take to arrive.
    pub body_timeout: Duration,
    /// Connections open at once; further ones wait until one closes.
    pub connections: usize,
    /// Connections open at once from one address; further ones are closed immediately. 127.0.0.1, ::1
    /// and trusted proxies are exempt. 0: no limit.
    pub connections_per_address: usize,
    /// How long a client's socket may accept no data before the connection is closed.
    pub write_timeout: Duration,
    /// Daemons, not counting revoked ones, that one user may have.
    pub daemons_per_user: u32,
    /// New daemons that one user may register in 24 hours.
    pub new_daemons_per_day: u32,
    /// Wrong API keys and unknown devices from one address; further wrong ones get 429. Valid keys are never refused for
    /// it: behind one address may be many.
    pub failures_per_address: Rate,
    /// Uses of the same wrong API key, from all addresses.
    pub failures_per_key: Rate,
    /// Tokens issued to valid keys and devices of one address.
    pub tokens_per_address: Rate,
    /// Tokens issued to one API key.
    pub tokens_per_key: Rate,
    /// Tokens issued to one paired device.
    pub tokens_per_device: Rate,
    /// Concurrent status requests to the relay, over all callers.
    pub questions: usize,
    /// The timeout of one status request to the relay.
    pub question_timeout: Duration,
    /// The timeout of all status requests for one list of daemons.
    pub list_timeout: Duration,
}

impl ControlLimits {
    pub(super) fn door(&self) -> DoorLimits {
        DoorLimits {
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            request_head: self.request_head,
            header_timeout: self.header_timeout,
            keep_alive: self.keep_alive,
            half_closed: self.half_closed,
            write_timeout: self.write_timeout,
            http2_streams: 0,
        }
    }
}

impl Default for ControlLimits {
    fn default() -> Self {
        let rate = |burst, every| Rate { burst, every };
        Self {
            request_head: 16 << 10,
            request_body: 16 << 10,
            device_set_body: 32 << 10,
            header_timeout: Duration::from_secs(5),
            keep_alive: Duration::from_secs(75),
            half_closed: Duration::from_secs(60),
            body_timeout: Duration::from_secs(10),
            connections: 1024,
            connections_per_address: 256,
            write_timeout: Duration::from_secs(10),
            daemons_per_user: 256,
            new_daemons_per_day: 1024,
            failures_per_address: rate(20, Duration::from_secs(3)),
            failures_per_key: rate(10, Duration::from_secs(6)),
            tokens_per_address: rate(600, Duration::from_millis(100)),
            tokens_per_key: rate(300, Duration::from_millis(200)),
            tokens_per_device: rate(300, Duration::from_millis(200)),
            questions: 32,
            question_timeout: Duration::from_secs(1),
            list_timeout: Duration::from_secs(3),
        }
    }
}

/// Why a configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadConfig {
    #[error("the issuer {0} is not an http or https address without query")]
    Issuer(String),
    #[error("the relay's address {0} is not a ws or wss address")]
    RelayUrl(String),
    #[error("presence tokens must be good for one minute to one day")]
    PresenceTtl,
    #[error("a region must not be empty")]
    Region,
}

impl ControlConfig {
    /// A configuration with the default of every other setting.
    pub fn new(data: impl Into<PathBuf>, issuer: &str, relay_url: Url) -> Self {
        Self {
            data: data.into(),
            issuer: crate::issuer_name::normal(issuer),
            relay_url,
            region: None,
            presence_ttl: Duration::from_secs(3600),
            metrics: MetricsAccess::default(),
            limits: ControlLimits::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), BadConfig> {
        let issuer = Url::parse(&self.issuer).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.query().is_none()
                && url.fragment().is_none()
        });
        if issuer.is_none() || self.issuer.ends_with('/') {
            return Err(BadConfig::Issuer(self.issuer.clone()));
        }
        let relay = &self.relay_url;
        if !matches!(relay.scheme(), "ws" | "wss") || relay.host().is_none() {
            return Err(BadConfig::RelayUrl(relay.to_string()));
        }
        if !(SHORTEST_PRESENCE..=LONGEST_PRESENCE).contains(&self.presence_ttl) {
            return Err(BadConfig::PresenceTtl);
        }
        if self.region.as_deref() == Some("") { Err(BadConfig::Region) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(issuer: &str, relay: &str) -> ControlConfig {
        ControlConfig::new("/nowhere", issuer, relay.parse().unwrap())
    }

    #[test]
    fn the_defaults_are_within_their_own_bounds() {
        assert_eq!(config("http://127.0.0.1:1/", "ws://127.0.0.1:2/relay").check(), Ok(()));
        assert_eq!(config("https://c.example/base", "wss://r.example").check(), Ok(()));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for issuer in ["", "c.example", "ftp://c.example", "https://c.example?x", "https://c/#x"] {
            let refused = config(issuer, "ws://r").check();
            assert!(matches!(refused, Err(BadConfig::Issuer(_))), "{issuer}");
        }
        let refused = config("http://c", "https://r/relay").check();
        assert_eq!(refused, Err(BadConfig::RelayUrl("https://r/relay".into())));
        let mut config = config("http://c", "ws://r");
        config.presence_ttl = Duration::from_secs(59);
        assert_eq!(config.check(), Err(BadConfig::PresenceTtl));
        config.presence_ttl = Duration::from_secs(60);
        config.region = Some(String::new());
        assert_eq!(config.check(), Err(BadConfig::Region));
    }
}
