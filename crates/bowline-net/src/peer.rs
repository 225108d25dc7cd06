//! The client address of a request, and the connection limits per address.
//!
//! For a connection from a trusted proxy, the client address is taken from what the proxy says
//! ([`crate::forwarded`]). From any other peer that is ignored.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::loopback::{is_localhost, is_loopback};

/// The peer of a request; the listener puts it into the request's extensions.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The client address, behind trusted proxies.
    pub address: IpAddr,
    /// A proxy passed the request on, trusted or not: who sent it may be anywhere.
    pub is_forwarded: bool,
    /// The connection's permit. To be kept for as long as an upgraded connection is open.
    pub place: ConnectionPermit,
    /// Cancelled when the client closes its sending side during a response: it waits for the answer,
    /// or is gone.
    pub half_closed: CancellationToken,
}

impl Peer {
    /// Whether the request was sent on this machine, as far as can be told: by a loopback connection
    /// that is no proxy's.
    pub fn is_local(&self) -> bool {
        !self.is_forwarded && is_loopback(self.address)
    }
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

    /// A permit for one more connection from that address. None for 127.0.0.1, ::1 and trusted
    /// proxies, which are exempt: they stand for many clients. Another loopback address was chosen by
    /// its program, and counts as any other one.
    pub(crate) fn place(
        self: &Arc<Self>,
        from: IpAddr,
        trusted: &[IpNet],
    ) -> Result<Option<AddressPermit>, Full> {
        let exempt = |network: &IpNet| network.contains(&from.to_canonical());
        if self.most == 0 || is_localhost(from) || trusted.iter().any(exempt) {
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
    fn g11_an_address_has_so_many_connections_and_no_more() {
        let addresses = Addresses::new(2);
        let place = |from: &str| addresses.place(ip(from), &["10.0.0.0/8".parse().unwrap()]);
        let first = place("192.0.2.1").unwrap();
        let second = place("::ffff:192.0.2.1").unwrap();
        assert_eq!(place("192.0.2.1").unwrap_err(), Full);
        let _other = place("192.0.2.2").unwrap();
        for near in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1"] {
            assert!(place(near).unwrap().is_none(), "{near} is exempt");
        }
        assert!(place("127.0.0.2").unwrap().is_some(), "chosen by its program");
        drop(first);
        let _third = place("192.0.2.1").unwrap();
        drop(second);
        drop(_third);
        assert_eq!(addresses.open().len(), 1, "those without connections are forgotten");
        assert!(Addresses::new(0).place(ip("192.0.2.1"), &[]).unwrap().is_none());
    }
}
