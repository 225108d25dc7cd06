//! Whether a server may listen where it is told to: what travels to and from other machines has to be
//! encrypted, by its own certificate or by a proxy in front.
//!
//! Apart, because gateway, relay and control plane follow the same rule and say the same about it.
//!
//! Invariants
//! - A plain listener that other machines can reach exists only if its proxies are named, or if the
//!   operator said that plain HTTP is meant.
//! - If its proxies are named, it takes connections from them and from this machine, and from nobody
//!   else: a client that went around the proxy would send its key in the clear.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::loopback::is_loopback;
use crate::tls::Tls;

/// Where a server listens, and what is between it and its clients.
#[derive(Debug, Clone, PartialEq)]
pub struct DoorConfig {
    pub address: SocketAddr,
    /// Its own certificate. Without it: plain HTTP.
    pub tls: Option<Tls>,
    /// The proxies in front of it. What they say about whom they call for is believed
    /// ([`crate::forwarded`]), and the limits per address do not count them.
    pub behind_proxy: Vec<IpNet>,
    /// Plain HTTP to everybody is meant.
    pub insecure: bool,
}

/// A server that other machines could reach only in the clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} can be reached from other machines, and without TLS keys and conversations would be \
     readable on the way"
)]
pub struct PlainAddress {
    pub address: SocketAddr,
}

impl PlainAddress {
    /// What to do about it.
    pub const HINT: &str = "give it a certificate with --tls-cert and --tls-key; or name the proxy that \
        ends TLS in front of it with --behind-proxy ADDRESS; or say --insecure if plain HTTP is meant. \
        On 127.0.0.1 none of them is needed";
}

/// From whom connections are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakenFrom {
    Everybody,
    /// From the named proxies and from this machine.
    Proxies,
}

impl DoorConfig {
    /// Plain HTTP, for loopback.
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None, behind_proxy: Vec::new(), insecure: false }
    }

    /// From whom such a server may take connections.
    pub fn taken_from(&self) -> Result<TakenFrom, PlainAddress> {
        if self.tls.is_some() || self.insecure || is_loopback(self.address.ip()) {
            return Ok(TakenFrom::Everybody);
        }
        match self.behind_proxy.is_empty() {
            true => Err(PlainAddress { address: self.address }),
            false => Ok(TakenFrom::Proxies),
        }
    }
}

impl TakenFrom {
    pub(crate) fn takes(self, from: IpAddr, proxies: &[IpNet]) -> bool {
        let from = from.to_canonical();
        let is_named = || proxies.iter().any(|network| network.contains(&from));
        self == Self::Everybody || is_loopback(from) || is_named()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, is_tls: bool, proxy: bool, insecure: bool) -> Option<TakenFrom> {
        let tls = is_tls.then(|| Tls::new("c".into(), "k".into()));
        let behind_proxy = proxy.then(|| "10.0.0.0/8".parse().unwrap()).into_iter().collect();
        let address = address.parse().unwrap();
        DoorConfig { address, tls, behind_proxy, insecure }.taken_from().ok()
    }

    #[test]
    fn a_plain_address_for_others_needs_a_certificate_a_proxy_or_a_word() {
        for public in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[2001:db8::1]:1"] {
            assert_eq!(check(public, false, false, false), None, "{public}");
            assert_eq!(check(public, true, false, false), Some(TakenFrom::Everybody));
            assert_eq!(check(public, false, false, true), Some(TakenFrom::Everybody));
            assert_eq!(check(public, false, true, false), Some(TakenFrom::Proxies));
            assert_eq!(check(public, true, true, false), Some(TakenFrom::Everybody));
            assert_eq!(check(public, false, true, true), Some(TakenFrom::Everybody));
        }
        for here in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(check(here, false, false, false), Some(TakenFrom::Everybody), "{here}");
        }
    }

    #[test]
    fn behind_a_proxy_nobody_else_is_taken_in_the_clear() {
        let proxies = ["10.0.0.0/8".parse().unwrap()];
        for (from, taken) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("127.0.0.1", true),
            ("::1", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            let from = from.parse().unwrap();
            assert_eq!(TakenFrom::Proxies.takes(from, &proxies), taken, "{from}");
            assert!(TakenFrom::Everybody.takes(from, &proxies));
        }
    }
}
