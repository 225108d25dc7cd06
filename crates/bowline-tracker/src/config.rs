//! The settings of a tracker. Every limit has its default here, in one place (G11).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bowline_net::tls::Tls;
use bowline_net::{DoorLimits, duration, listen, peer};
use bowline_sbp::federation::{BaseUrl, GatewayId};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The tracker's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrackerConfig {
    /// The folder of its key and its records; by default `tracker` in bowline's data folder.
    pub data: Option<PathBuf>,
    /// The address to listen on. Anything but loopback needs `tls`, `behind_proxy` or `insecure`.
    #[serde(deserialize_with = "listen::deserialize")]
    pub listen: SocketAddr,
    /// What gateways call it.
    pub id: GatewayId,
    /// A name for people, in its manifest.
    pub name: String,
    /// Where gateways reach it; by default the address that it listens on.
    pub url: Option<BaseUrl>,
    /// TLS certificate and key. Without them it speaks plain HTTP, for loopback or a proxy.
    pub tls: Option<Tls>,
    /// Allows plain HTTP with everybody on a public address.
    pub insecure: bool,
    /// Addresses and networks of the proxies in front of it, which terminate TLS.
    #[serde(deserialize_with = "peer::networks")]
    pub behind_proxy: Vec<IpNet>,
    /// Gateways that are asked for their keys at these addresses, which may be private.
    pub peers: BTreeMap<GatewayId, BaseUrl>,
    /// Take announcements of `peers` alone.
    pub only_peers: bool,
    pub limits: TrackerLimits,
}

impl Default for TrackerConfig {
    fn default() -> Self {
        Self {
            data: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 8092)),
            id: "tracker".parse().expect("it is an id"),
            name: String::new(),
            url: None,
            tls: None,
            insecure: false,
            behind_proxy: Vec::new(),
            peers: BTreeMap::new(),
            only_peers: false,
            limits: TrackerLimits::default(),
        }
    }
}

/// Limits on sizes, counts, rates and durations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrackerLimits {
    /// Records in all; further announcements get 503.
    pub records: u64,
    /// Records of one gateway; announcements beyond get 403.
    pub records_per_gateway: u64,
    /// Gateways that are known; announcements of further ones get 503.
    pub gateways: u64,
    /// Announcements a minute from one address; more get 429. Loopback is exempt. 0: no limit.
    pub announcements_per_minute: u32,
    /// Look-ups a second from one address; more get 429. Loopback is exempt. 0: no limit.
    pub lookups_per_second: u32,
    /// How long a gateway's key counts before it is asked for again.
    #[serde(with = "duration")]
    pub key_age: Duration,
    /// Connections open at once; further ones wait until one closes.
    pub connections: usize,
    /// Connections open at once from one address; further ones are closed immediately. 127.0.0.1, ::1
    /// and trusted proxies are exempt. 0: no limit.
    pub connections_per_address: usize,
    /// Requests that run at once on one connection of HTTP/2; further ones are refused. 0: HTTP/1.1 only.
    pub http2_streams: u32,
    /// The largest request head, in bytes; at least 8 KiB.
    pub request_head: usize,
    /// The timeout of a TLS handshake, and of reading a request head.
    #[serde(with = "duration")]
    pub header_timeout: Duration,
    /// How long a request body may take to arrive.
    #[serde(with = "duration")]
    pub body_timeout: Duration,
    /// How long a connection may be idle between two requests.
    #[serde(with = "duration")]
    pub keep_alive: Duration,
    /// How long a response goes on for a client that has closed its sending side.
    #[serde(with = "duration")]
    pub half_closed: Duration,
    /// How long a peer's socket may accept no data before the connection is closed.
    #[serde(with = "duration")]
    pub write_timeout: Duration,
    /// How long a shutdown waits for open requests.
    #[serde(with = "duration")]
    pub drain: Duration,
}

impl TrackerLimits {
    pub(crate) fn door(&self) -> DoorLimits {
        DoorLimits {
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            request_head: self.request_head,
            header_timeout: self.header_timeout,
            keep_alive: self.keep_alive,
            half_closed: self.half_closed,
            write_timeout: self.write_timeout,
            http2_streams: self.http2_streams,
        }
    }
}

impl Default for TrackerLimits {
    fn default() -> Self {
        Self {
            records: 5_000_000,
            records_per_gateway: 100_000,
            gateways: 10_000,
            announcements_per_minute: 120,
            lookups_per_second: 100,
            key_age: Duration::from_secs(3600),
            connections: 4096,
            connections_per_address: 256,
            http2_streams: 100,
            request_head: 16 << 10,
            header_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            half_closed: Duration::from_secs(60),
            write_timeout: Duration::from_secs(10),
            drain: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_read_as_people_write_them() {
        let config: TrackerConfig = serde_json::from_str(
            r#"{"id": "t1", "url": "https://t.example/", "limits": {"key_age": "5m"},
                "peers": {"a": "http://127.0.0.1:8080"}}"#,
        )
        .unwrap();
        assert_eq!((config.id.as_str(), config.limits.key_age.as_secs()), ("t1", 300));
        assert_eq!(config.peers.len(), 1);
        let back = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<TrackerConfig>(&back).unwrap(), config);
        for wrong in [r#"{"idd": "t1"}"#, r#"{"id": "T 1"}"#, r#"{"peers": {"a": "x"}}"#] {
            assert!(serde_json::from_str::<TrackerConfig>(wrong).is_err(), "{wrong}");
        }
    }
}
