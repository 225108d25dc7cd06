//! What a control plane is told, and every bound it keeps (G11).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use bowline_net::DoorLimits;
use bowline_net::rate::Rate;
use bowline_net::tls::Tls;
use ipnet::IpNet;

/// How long a client's token is good for: it is used at once or not at all.
pub(super) const SESSION_TTL: u64 = 120;
const SHORTEST_PRESENCE: Duration = Duration::from_secs(60);
const LONGEST_PRESENCE: Duration = Duration::from_secs(24 * 3600);

/// What one control plane is.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// The folder of the registry; made if it is missing. Only its owner may open it.
    pub data: PathBuf,
    /// What tokens name as their issuer; relays fetch the key set below it. Without a slash at
    /// the end.
    pub issuer: String,
    /// Where daemons and clients connect: `wss://host/relay`.
    pub relay_url: Url,
    /// The region of that relay, which tokens then name. None by default.
    pub region: Option<String>,
    /// How long a presence token is good for, one minute to one day; one hour by default. A
    /// revoked daemon may reconnect for as long at a relay that cannot fetch the list of those.
    pub presence_ttl: Duration,
    pub limits: ControlLimits,
}

/// Where a control plane of its own listens.
#[derive(Debug, Clone)]
pub struct Listen {
    pub address: SocketAddr,
    /// Certificate and key; none: plain HTTP, for this machine or a proxy.
    pub tls: Option<Tls>,
    /// Allows plain HTTP on a public address, for use behind a proxy that terminates TLS.
    pub insecure_plain: bool,
    /// Networks of proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
}

impl Listen {
    /// In the clear, for this machine.
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None, insecure_plain: false, trusted_proxies: Vec::new() }
    }
}

/// How much, how many, how long, how often.
#[derive(Debug, Clone)]
pub struct ControlLimits {
    /// The largest request head, in bytes.
    pub request_head: usize,
    /// The largest request body, in bytes.
    pub request_body: usize,
    /// How long a request head may take to arrive.
    pub header_timeout: Duration,
    /// How long a request body may take to arrive.
    pub body_timeout: Duration,
    /// Connections open at once; more wait for one to close.
    pub connections: usize,
    /// The same for one address; more are closed at once. This machine and trusted proxies are
    /// exempt. 0: no limit.
    pub connections_per_address: usize,
    /// How long a client may take nothing of what it is sent.
    pub write_timeout: Duration,
    /// Daemons in force that one user may have.
    pub daemons_per_user: u32,
    /// Wrong keys from one address; once used up, right ones are not looked at either.
    pub failures_per_address: Rate,
    /// The same wrong key from anywhere.
    pub failures_per_key: Rate,
    /// Tokens for one address.
    pub tokens_per_address: Rate,
    /// Tokens for one key.
    pub tokens_per_key: Rate,
    /// Questions to the relay at once, over all callers.
    pub questions: usize,
    /// How long the relay may take to answer one.
    pub question_timeout: Duration,
    /// How long a list of daemons waits for all of them together.
    pub list_timeout: Duration,
}

impl ControlLimits {
    pub(super) fn door(&self) -> DoorLimits {
        DoorLimits {
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            request_head: self.request_head,
            header_timeout: self.header_timeout,
            write_timeout: self.write_timeout,
        }
    }
}

impl Default for ControlLimits {
    fn default() -> Self {
        let rate = |burst, every| Rate { burst, every };
        Self {
            request_head: 16 << 10,
            request_body: 16 << 10,
            header_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(10),
            connections: 1024,
            connections_per_address: 256,
            write_timeout: Duration::from_secs(10),
            daemons_per_user: 256,
            failures_per_address: rate(20, Duration::from_secs(3)),
            failures_per_key: rate(10, Duration::from_secs(6)),
            tokens_per_address: rate(600, Duration::from_millis(100)),
            tokens_per_key: rate(300, Duration::from_millis(200)),
            questions: 32,
            question_timeout: Duration::from_secs(1),
            list_timeout: Duration::from_secs(3),
        }
    }
}

/// What a configuration cannot mean.
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
    /// With defaults for all that has one.
    pub fn new(data: impl Into<PathBuf>, issuer: &str, relay_url: Url) -> Self {
        Self {
            data: data.into(),
            issuer: issuer.trim_end_matches('/').to_owned(),
            relay_url,
            region: None,
            presence_ttl: Duration::from_secs(3600),
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
