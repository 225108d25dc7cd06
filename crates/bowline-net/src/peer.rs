//! Who sent a request: a client address or a device; and the connection limits of each.
//!
//! For a connection from a trusted proxy, the client address is taken from what the proxy says
//! ([`crate::forwarded`]). From any other peer that is ignored. A device was authenticated before its
//! connection came in (`door::Entrance`); it has no address.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::loopback::{is_localhost, is_loopback};

/// The peer of a request; the listener puts it into the request's extensions.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The client address, behind trusted proxies; [`NO_ADDRESS`] for a device.
    pub address: IpAddr,
    /// The device that the connection is from, if it came from inside the process.
    pub device: Option<DeviceEntry>,
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
    /// that is no proxy's. A device is another machine.
    pub fn is_local(&self) -> bool {
        self.device.is_none() && !self.is_forwarded && is_loopback(self.address)
    }

    /// What it is called in logs and records.
    pub fn name(&self) -> PeerName {
        match &self.device {
            Some(device) => PeerName::Device(Arc::clone(&device.id)),
            None => PeerName::Address(self.address),
        }
    }
}

/// The address of what has none.
pub const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A device that was authenticated before its connection came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceEntry {
    /// The id of its credential.
    pub id: Arc<str>,
    /// The connection is from a local port of the device, which any program there can use, and not
    /// from Bowline's own client.
    pub programs: bool,
}

/// An address, or a device by the id of its credential.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PeerName {
    Address(IpAddr),
    Device(Arc<str>),
}

impl PeerName {
    /// The unit of tallies: a device, or the [`network`] of an address.
    #[must_use]
    pub fn network(&self) -> Self {
        match self {
            Self::Address(address) => Self::Address(network(*address)),
            Self::Device(id) => Self::Device(Arc::clone(id)),
        }
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Device(id) => write!(f, "device:{id}"),
        }
    }
}

/// A connection's permit of the connection limits, released when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct ConnectionPermit(#[expect(dead_code, reason = "held, never read")] Arc<Permits>);

#[derive(Debug)]
struct Permits {
    _of_all: OwnedSemaphorePermit,
    _of_peer: Option<PeerPermit>,
}

impl ConnectionPermit {
    pub(crate) fn new(of_all: OwnedSemaphorePermit, of_peer: Option<PeerPermit>) -> Self {
        Self(Arc::new(Permits { _of_all: of_all, _of_peer: of_peer }))
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

/// How many connections each network and each device has open.
#[derive(Debug)]
pub(crate) struct OpenConnections {
    most: usize,
    of: Mutex<HashMap<PeerName, usize>>,
}

/// A permit for one connection of a network or device.
#[derive(Debug)]
pub(crate) struct PeerPermit {
    open: Arc<OpenConnections>,
    peer: PeerName,
}

impl OpenConnections {
    /// 0: no limit.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, of: Mutex::default() })
    }

    /// A permit for one more connection from that address. None for 127.0.0.1, ::1 and trusted
    /// proxies, which are exempt: they stand for many clients. Another loopback address was chosen by
    /// its program, and counts as any other one.
    pub(crate) fn from_address(
        self: &Arc<Self>,
        from: IpAddr,
        trusted: &[IpNet],
    ) -> Result<Option<PeerPermit>, Full> {
        let exempt = |network: &IpNet| network.contains(&from.to_canonical());
        if is_localhost(from) || trusted.iter().any(exempt) {
            return Ok(None);
        }
        self.permit(PeerName::Address(network(from)))
    }

    /// A permit for one more connection of that device.
    pub(crate) fn from_device(
        self: &Arc<Self>,
        device: &DeviceEntry,
    ) -> Result<Option<PeerPermit>, Full> {
        self.permit(PeerName::Device(Arc::clone(&device.id)))
    }

    fn permit(self: &Arc<Self>, peer: PeerName) -> Result<Option<PeerPermit>, Full> {
        if self.most == 0 {
            return Ok(None);
        }
        let mut of = self.of();
        let count = of.entry(peer.clone()).or_default();
        if *count >= self.most {
            return Err(Full);
        }
        *count += 1;
        drop(of);
        Ok(Some(PeerPermit { open: Arc::clone(self), peer }))
    }

    fn of(&self) -> MutexGuard<'_, HashMap<PeerName, usize>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection limit of the address or device is reached.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Drop for PeerPermit {
    fn drop(&mut self) {
        let mut of = self.open.of();
        if let Some(count) = of.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                of.remove(&self.peer);
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
        let addresses = OpenConnections::new(2);
        let place = |from: &str| addresses.from_address(ip(from), &["10.0.0.0/8".parse().unwrap()]);
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
        assert_eq!(addresses.of().len(), 1, "those without connections are forgotten");
        assert!(OpenConnections::new(0).from_address(ip("192.0.2.1"), &[]).unwrap().is_none());
    }

    #[test]
    fn g11_a_device_has_so_many_connections_and_no_more() {
        let open = OpenConnections::new(1);
        let device = |id: &str, programs| DeviceEntry { id: id.into(), programs };
        let first = open.from_device(&device("a", false)).unwrap();
        assert_eq!(open.from_device(&device("a", true)).unwrap_err(), Full, "whoever uses it");
        let _other = open.from_device(&device("b", false)).unwrap();
        let _address = open.from_address(ip("192.0.2.1"), &[]).unwrap();
        drop(first);
        assert!(open.from_device(&device("a", false)).unwrap().is_some());
    }
}
