//! The client address of a request, and the connection limits per address.
//!
//! For a connection from a trusted proxy, the client address is taken from `X-Forwarded-For`. From
//! any other peer that header is ignored.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::HeaderMap;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::loopback::is_loopback;

/// The peer of a request; the listener puts it into the request's extensions.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The client address, behind trusted proxies.
    pub address: IpAddr,
    /// The connection's permit. To be kept for as long as an upgraded connection is open.
    pub place: ConnectionPermit,
    /// Cancelled when the client closes its sending side during a response: it waits for the answer,
    /// or is gone.
    pub half_closed: CancellationToken,
}

/// A connection's permit of the connection limits, released when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct ConnectionPermit(#[expect(dead_code, reason = "held, never read")] Arc<Permits>);

#[derive(Debug)]
struct Permits {
    _of_all: OwnedSemaphorePermit,
    _of_address: Option<AddressPermit>,
}

impl ConnectionPermit {
    pub(crate) fn new(of_all: OwnedSemaphorePermit, of_address: Option<AddressPermit>) -> Self {
        Self(Arc::new(Permits { _of_all: of_all, _of_address: of_address }))
    }
}

/// Parses a network or a single address: `10.0.0.0/8`, `10.0.0.5`.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| format!("`{text}` is not a network; write it like 10.0.0.0/8 or 10.0.0.5"))
}

/// Deserialises a list of networks.
pub fn networks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let networks = texts.iter().map(|text| parse_network(text));
    networks.collect::<Result<_, _>>().map_err(serde::de::Error::custom)
}

/// The unit of per-address limits: an IPv4 address, or an IPv6 /64 network (one household).
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

/// The client address of a request on a connection from `connected`.
pub(crate) fn behind(connected: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: IpAddr| {
        let address = address.to_canonical();
        trusted.iter().any(|network| network.contains(&address))
    };
    let mut known = connected.to_canonical();
    // Each proxy appends: read from the end, until an address is not a trusted proxy.
    let forwarded = headers.get_all("x-forwarded-for").iter().rev();
    let named = forwarded.flat_map(|value| value.to_str().unwrap_or("?").rsplit(','));
    for name in named {
        if !is_trusted(known) {
            break;
        }
        let Some(address) = address_in(name.trim()) else { break };
        known = address;
    }
    known
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn address_in(name: &str) -> Option<IpAddr> {
    let with_port = || name.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    let address = name.trim_start_matches('[').trim_end_matches(']').parse().ok();
    address.or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

/// How many connections each network has open.
#[derive(Debug)]
pub(crate) struct Addresses {
    most: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A permit for one connection from a network.
#[derive(Debug)]
pub(crate) struct AddressPermit {
    addresses: Arc<Addresses>,
    network: IpAddr,
}

impl Addresses {
    /// 0: no limit.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default() })
    }

    /// A permit for one more connection from that address. None for loopback addresses and trusted
    /// proxies, which are exempt: they serve many clients.
    pub(crate) fn place(
        self: &Arc<Self>,
        from: IpAddr,
        trusted: &[IpNet],
    ) -> Result<Option<AddressPermit>, Full> {
        let exempt = |network: &IpNet| network.contains(&from.to_canonical());
        if self.most == 0 || is_loopback(from) || trusted.iter().any(exempt) {
            return Ok(None);
        }
        let network = network(from);
        let mut open = self.open();
        let count = open.entry(network).or_default();
        if *count >= self.most {
            return Err(Full);
        }
        *count += 1;
        drop(open);
        Ok(Some(AddressPermit { addresses: Arc::clone(self), network }))
    }

    fn open(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection limit of the address is reached.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut open = self.addresses.open();
        if let Some(count) = open.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_of_one_household_count_as_one() {
        assert_eq!(network(ip("2001:db8:1:2::3")), network(ip("2001:db8:1:2:ffff::4")));
        assert_ne!(network(ip("2001:db8:1:2::3")), network(ip("2001:db8:1:3::3")));
        assert_eq!(network(ip("::ffff:192.0.2.1")), network(ip("192.0.2.1")));
        assert_ne!(network(ip("192.0.2.1")), network(ip("192.0.2.2")));
    }

    #[test]
    fn networks_are_read_as_people_write_them() {
        let read = |text: &str| parse_network(text).map(|network| network.to_string());
        assert_eq!(read("10.0.0.0/8"), Ok("10.0.0.0/8".into()));
        assert_eq!(read("10.0.0.5"), Ok("10.0.0.5/32".into()));
        assert_eq!(read("fd00::1"), Ok("fd00::1/128".into()));
        assert!(read("proxy.example").unwrap_err().contains("10.0.0.0/8"));
    }

    #[test]
    fn only_trusted_proxies_say_who_is_behind_them() {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        for (connected, forwarded, client) in [
            ("192.0.2.1", vec!["203.0.113.9"], "192.0.2.1"),
            ("10.0.0.1", vec![], "10.0.0.1"),
            ("10.0.0.1", vec!["203.0.113.9"], "203.0.113.9"),
            ("::ffff:10.0.0.1", vec!["203.0.113.9"], "203.0.113.9"),
            ("fd00::1", vec!["[2001:db8::1]:443"], "2001:db8::1"),
            ("10.0.0.1", vec!["203.0.113.9:1234"], "203.0.113.9"),
            // What the client sent itself comes before what the proxy appended.
            ("10.0.0.1", vec!["127.0.0.1, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", vec!["127.0.0.1", "203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", vec!["203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", vec!["unknown"], "10.0.0.1"),
            ("10.0.0.1", vec!["203.0.113.9, nonsense, 10.0.0.2"], "10.0.0.2"),
        ] {
            let mut headers = HeaderMap::new();
            for value in &forwarded {
                headers.append("x-forwarded-for", value.parse().unwrap());
            }
            let found = behind(ip(connected), &headers, &trusted);
            assert_eq!(found, ip(client), "{connected} {forwarded:?}");
        }
    }

    #[test]
    fn g11_an_address_has_so_many_connections_and_no_more() {
        let addresses = Addresses::new(2);
        let place = |from: &str| addresses.place(ip(from), &["10.0.0.0/8".parse().unwrap()]);
        let first = place("192.0.2.1").unwrap();
        let second = place("::ffff:192.0.2.1").unwrap();
        assert_eq!(place("192.0.2.1").unwrap_err(), Full);
        let _other = place("192.0.2.2").unwrap();
        for near in ["127.0.0.1", "::1", "10.0.0.1"] {
            assert!(place(near).unwrap().is_none(), "{near} is exempt");
        }
        drop(first);
        let _third = place("192.0.2.1").unwrap();
        drop(second);
        drop(_third);
        assert_eq!(addresses.open().len(), 1, "those without connections are forgotten");
        assert!(Addresses::new(0).place(ip("192.0.2.1"), &[]).unwrap().is_none());
    }
}
