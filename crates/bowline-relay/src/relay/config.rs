//! What a relay can be told. Every bound has a default here, in one place (G11).

use std::net::SocketAddr;
use std::time::Duration;

use bowline_net::tls::Tls;
use bowline_net::{DoorLimits, duration, peer};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The relay's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayConfig {
    /// Where to listen. Anything but loopback needs `tls`, or `insecure_plain`.
    pub listen: SocketAddr,
    /// The control plane whose tokens count: their `iss`, and where its keys are
    /// (`<issuer>/.well-known/jwks.json`). `https`, or `http` on this machine.
    pub issuer: String,
    /// Where the relay stands. Tokens that name another region are refused; without a region, all
    /// that name one.
    pub region: Option<String>,
    /// Certificate and key; none: plain HTTP, for this machine or a proxy.
    pub tls: Option<Tls>,
    /// Allows plain HTTP on a public address, for use behind a proxy that terminates TLS.
    pub insecure_plain: bool,
    /// Networks of proxies whose `X-Forwarded-For` is believed.
    #[serde(deserialize_with = "peer::networks")]
    pub trusted_proxies: Vec<IpNet>,
    /// How long a session waits for its daemon (SBRP-RELAY-09).
    #[serde(with = "duration")]
    pub grace: Duration,
    pub keys: KeyConfig,
    pub limits: RelayLimits,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8090)),
            issuer: "http://127.0.0.1:8091".into(),
            region: None,
            tls: None,
            insecure_plain: false,
            trusted_proxies: Vec::new(),
            grace: bowline_sbrp::relay::DEFAULT_GRACE,
            keys: KeyConfig::default(),
            limits: RelayLimits::default(),
        }
    }
}

/// How the control plane's keys, and its list of revoked daemons, are kept (G15).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyConfig {
    /// How long fetched keys count without asking again. At most five minutes, whatever it says.
    #[serde(with = "duration")]
    pub max_age: Duration,
    /// How long known keys count beyond that while the control plane cannot be reached. After it
    /// nobody new is let in.
    #[serde(with = "duration")]
    pub stale_for: Duration,
    /// The pause between two fetches, whatever tokens ask for.
    #[serde(with = "duration")]
    pub retry_every: Duration,
    /// How often to ask which daemons were revoked; those are sent away.
    #[serde(with = "duration")]
    pub revoked_every: Duration,
    /// How long one fetch may take.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// The largest key set, in bytes.
    pub body: usize,
}

impl Default for KeyConfig {
    fn default() -> Self {
        Self {
            max_age: Duration::from_secs(300),
            stale_for: Duration::from_secs(3600),
            retry_every: Duration::from_secs(10),
            revoked_every: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            body: 64 << 10,
        }
    }
}

/// How much, how many, how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayLimits {
    /// Connections open at once; more wait for one to close.
    pub connections: usize,
    /// The same for one address; more are closed at once. This machine and trusted proxies are
    /// exempt. 0: no limit.
    pub connections_per_address: usize,
    /// New connections a second, all together; more get 429. 0: no limit.
    pub rate_connections: u32,
    /// The same for one address; this machine's own are exempt. 0: no limit, as behind a proxy
    /// that is not trusted, where all come from one address.
    pub rate_connections_ip: u32,
    /// Messages a second from one connection; more are delayed, and the sender is told
    /// `rate_limited` (SBRP-RELAY-07). A second's worth may come at once. 0: no limit.
    pub rate_frames: u32,
    /// The largest request head, in bytes; at least 8 KiB.
    pub request_head: usize,
    /// How long a TLS handshake and a request head may take, each.
    #[serde(with = "duration")]
    pub header_timeout: Duration,
    /// Messages that may wait for a client (SBRP-RELAY-08).
    pub queue_frames: usize,
    /// Messages that may wait for a daemon, which carries many sessions. Its clients are held
    /// back meanwhile, and it is closed if nothing moves.
    pub daemon_queue_frames: usize,
    /// Bytes that may wait for either.
    pub queue_bytes: usize,
    /// How long a peer may take to accept what it is sent.
    #[serde(with = "duration")]
    pub write_timeout: Duration,
    /// How long a connection may be silent before it is pinged.
    #[serde(with = "duration")]
    pub ping_every: Duration,
    /// How long the answer may take before the connection counts as dead.
    #[serde(with = "duration")]
    pub pong_timeout: Duration,
    /// How long a connection that was told goodbye may take to answer.
    #[serde(with = "duration")]
    pub farewell: Duration,
    /// Sessions of one daemon, unless its token says otherwise.
    pub daemon_sessions: u64,
    /// Sessions of one user, unless its token says otherwise.
    pub user_sessions: u64,
    /// How long a stop waits for connections to end.
    #[serde(with = "duration")]
    pub drain: Duration,
}

impl RelayLimits {
    pub(crate) fn door(&self) -> DoorLimits {
        DoorLimits {
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            request_head: self.request_head,
            header_timeout: self.header_timeout,
            write_timeout: self.write_timeout,
        }
    }
}

impl Default for RelayLimits {
    fn default() -> Self {
        Self {
            connections: 100_000,
            connections_per_address: 1024,
            rate_connections: 5_000,
            rate_connections_ip: 50,
            rate_frames: 50_000,
            request_head: 16 << 10,
            header_timeout: Duration::from_secs(5),
            queue_frames: 256,
            daemon_queue_frames: 4096,
            queue_bytes: 1 << 20,
            write_timeout: Duration::from_secs(10),
            ping_every: Duration::from_secs(20),
            pong_timeout: Duration::from_secs(10),
            farewell: Duration::from_secs(2),
            daemon_sessions: 10_000,
            user_sessions: 1_000,
            drain: Duration::from_secs(25),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_promised_bounds() {
        let limits = RelayLimits::default();
        assert_eq!((limits.queue_frames, limits.queue_bytes), (256, 1 << 20));
        assert_eq!(limits.request_head, 16 << 10);
        assert_eq!(limits.header_timeout, Duration::from_secs(5));
        assert_eq!(limits.write_timeout, Duration::from_secs(10));
        assert!(limits.drain < Duration::from_secs(30));
        let keys = KeyConfig::default();
        assert_eq!(keys.max_age, Duration::from_secs(300));
        assert_eq!(keys.retry_every, Duration::from_secs(10));
        assert_eq!(RelayConfig::default().grace, Duration::from_secs(30));
    }

    #[test]
    fn settings_read_as_people_write_them() {
        let config: RelayConfig = serde_json::from_str(
            r#"{"grace": "3s", "limits": {"rate_frames": 7}, "tls": {"cert": "c", "key": "k"}}"#,
        )
        .unwrap();
        assert_eq!((config.grace, config.limits.rate_frames), (Duration::from_secs(3), 7));
        assert_eq!(config.tls, Some(Tls::new("c".into(), "k".into())));
        let back = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<RelayConfig>(&back).unwrap(), config);
        assert!(serde_json::from_str::<RelayConfig>(r#"{"grce": "3s"}"#).is_err());
    }
}
