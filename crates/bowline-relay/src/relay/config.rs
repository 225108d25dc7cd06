//! The settings of a relay. Every limit has its default here, in one place (G11).

use std::net::SocketAddr;
use std::time::Duration;

use bowline_net::tls::Tls;
use bowline_net::{DoorLimits, duration, listen, peer};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::MetricsAccess;

/// The relay's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayConfig {
    /// The address to listen on. Anything but loopback needs `tls`, `behind_proxy` or `insecure`.
    #[serde(deserialize_with = "listen::deserialize")]
    pub listen: SocketAddr,
    /// The control plane whose tokens are accepted: the `iss` of its tokens, and the base URL of
    /// its key set (`<issuer>/.well-known/jwks.json`). `https`, or `http` on this machine.
    pub issuer: String,
    /// The name of this relay in the control plane's list of relays, by which it learns that it is
    /// drained. None: it is not in the list.
    pub name: Option<String>,
    /// The region of this relay. A token that names another region is refused; a relay without a
    /// region refuses every token that names one.
    pub region: Option<String>,
    /// TLS certificate and key. Without them the relay speaks plain HTTP, for loopback or a proxy.
    pub tls: Option<Tls>,
    /// Allows plain HTTP with everybody on a public address.
    #[serde(alias = "insecure_plain")]
    pub insecure: bool,
    /// Addresses and networks of the proxies in front of it, which terminate TLS. Their `Forwarded`
    /// and `X-Forwarded-For` are trusted. On a public address without `tls` nobody else may connect,
    /// unless `insecure` is set.
    #[serde(alias = "trusted_proxies", deserialize_with = "peer::networks")]
    pub behind_proxy: Vec<IpNet>,
    /// Who may read the metrics; by default this machine.
    #[serde(skip)]
    pub metrics: MetricsAccess,
    /// The grace period: how long a session waits for its daemon to reconnect (SBRP-RELAY-09).
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
            name: None,
            region: None,
            tls: None,
            insecure: false,
            behind_proxy: Vec::new(),
            metrics: MetricsAccess::default(),
            grace: bowline_sbrp::relay::DEFAULT_GRACE,
            keys: KeyConfig::default(),
            limits: RelayLimits::default(),
        }
    }
}

/// How the control plane's keys, and its list of revoked daemons, are fetched and cached (G15).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyConfig {
    /// How long fetched keys are used before they are fetched again. Capped at five minutes.
    #[serde(with = "duration")]
    pub max_age: Duration,
    /// How much longer cached keys are used while the control plane cannot be reached. After that
    /// no new connection is accepted.
    #[serde(with = "duration")]
    pub stale_for: Duration,
    /// The shortest time between two fetches, even if tokens name unknown keys.
    #[serde(with = "duration")]
    pub retry_every: Duration,
    /// How often the list of revoked daemons and users is fetched; connections of those on it are
    /// closed.
    #[serde(with = "duration")]
    pub revoked_every: Duration,
    /// How long one fetch may take.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// The largest key set that is read, in bytes.
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

/// Limits on sizes, counts, rates and durations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayLimits {
    /// Connections open at once; further ones wait until one closes.
    pub connections: usize,
    /// Connections open at once from one address; further ones are closed immediately. 127.0.0.1, ::1
    /// and trusted proxies are exempt. 0: no limit.
    pub connections_per_address: usize,
    /// New connections per second, over all addresses; further ones get 429. 0: no limit.
    pub rate_connections: u32,
    /// New connections per second from one address; loopback is exempt. 0: no limit, for use behind
    /// a proxy that is not trusted, where all connections have one address.
    pub rate_connections_ip: u32,
    /// Messages per second from one connection; further ones are delayed, and the sender gets
    /// `rate_limited` (SBRP-RELAY-07). A burst of one second's worth is allowed. 0: no limit.
    pub rate_frames: u32,
    /// The largest request head, in bytes; at least 8 KiB.
    pub request_head: usize,
    /// The timeout of a TLS handshake, and of reading a request head.
    #[serde(with = "duration")]
    pub header_timeout: Duration,
    /// How long a connection may be idle between two requests; 0: it is closed after each response.
    #[serde(with = "duration")]
    pub keep_alive: Duration,
    /// How long a response goes on for a client that has closed its sending side: it may wait for
    /// the answer, or be gone.
    #[serde(with = "duration")]
    pub half_closed: Duration,
    /// Messages that may be queued for a client (SBRP-RELAY-08).
    pub queue_frames: usize,
    /// Messages that may be queued for a daemon, which carries many sessions. While its queue is
    /// full its clients are not read (back-pressure); after `write_timeout` without progress it is
    /// closed.
    pub daemon_queue_frames: usize,
    /// Bytes that may be queued for a client or a daemon.
    pub queue_bytes: usize,
    /// How long a peer's socket may accept too little data before the connection is closed.
    #[serde(with = "duration")]
    pub write_timeout: Duration,
    /// How long a connection may be silent before it gets a keepalive ping.
    #[serde(with = "duration")]
    pub ping_every: Duration,
    /// How long the pong may take before the connection counts as dead.
    #[serde(with = "duration")]
    pub pong_timeout: Duration,
    /// How long a peer may take to answer a close frame.
    #[serde(with = "duration")]
    pub farewell: Duration,
    /// How old a session may become. It then ends with `session_expired`, and its client opens a new
    /// one with a new token. The end is spread over the last tenth of this time. 0: no limit.
    #[serde(with = "duration")]
    pub session_age: Duration,
    /// Concurrent sessions of one daemon, unless its token has its own limit.
    pub daemon_sessions: u64,
    /// Concurrent sessions of one user, unless the token has its own limit.
    pub user_sessions: u64,
    /// Within what time a drained relay closes its daemons, which go to another one.
    #[serde(with = "duration")]
    pub handover: Duration,
    /// How long a shutdown waits for connections to close.
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
            keep_alive: self.keep_alive,
            half_closed: self.half_closed,
            write_timeout: self.write_timeout,
            http2_streams: 0,
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
            keep_alive: Duration::from_secs(75),
            half_closed: Duration::from_secs(60),
            queue_frames: 256,
            daemon_queue_frames: 4096,
            queue_bytes: 1 << 20,
            write_timeout: Duration::from_secs(10),
            ping_every: Duration::from_secs(20),
            pong_timeout: Duration::from_secs(10),
            farewell: Duration::from_secs(2),
            session_age: Duration::from_secs(24 * 3600),
            daemon_sessions: 10_000,
            user_sessions: 1_000,
            handover: Duration::from_secs(30),
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
        assert_eq!(limits.session_age, Duration::from_secs(24 * 3600));
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
        let older = r#"{"insecure_plain": true, "trusted_proxies": ["10.0.0.5"]}"#;
        let older: RelayConfig = serde_json::from_str(older).unwrap();
        assert!(older.insecure && older.behind_proxy == ["10.0.0.5/32".parse().unwrap()]);
    }
}
