//! Addresses to listen on as people write them (`127.0.0.1:8080`, `localhost:8080`, `:8080`), and
//! the addresses under which a listener can be reached. For settings
//! (`#[serde(deserialize_with = "bowline_net::listen::deserialize")]`) and for flags ([`parse`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::net::if_::InterfaceFlags;
use serde::{Deserialize, Deserializer};

/// Parses an address and a port; the error says how to write one.
///
/// `localhost` is 127.0.0.1, and no host is every address of this machine (0.0.0.0). Other names are
/// refused: what a name stands for can change, and with it who can reach the server.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = || {
        format!(
            "`{text}` is not an address to listen on; write it like 127.0.0.1:8080, \
             localhost:8080, :8080 (every address of this machine) or [::1]:8080"
        )
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    // `parse` of a number accepts a sign.
    let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let port = port.and_then(|port| port.parse().ok()).ok_or_else(wrong)?;
    let host = match host {
        "" | "*" => Ipv4Addr::UNSPECIFIED,
        host if host.eq_ignore_ascii_case("localhost") => Ipv4Addr::LOCALHOST,
        _ => return Err(wrong()),
    };
    Ok((host, port).into())
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// The address at which this machine reaches a listener: loopback, if it listens on every address.
pub fn from_here(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        // Also takes IPv4, unless the system says otherwise; ::1 is right in both cases.
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

/// The addresses at which others reach a listener. None for loopback; the machine's own if it
/// listens on every address.
pub fn from_elsewhere(bound: SocketAddr) -> Vec<SocketAddr> {
    let ips = if bound.ip().is_unspecified() { own_addresses() } else { vec![bound.ip()] };
    let fits = |ip: &IpAddr| !ip.to_canonical().is_loopback() && (bound.is_ipv6() || ip.is_ipv4());
    ips.into_iter().filter(fits).map(|ip| SocketAddr::new(ip, bound.port())).collect()
}

/// Whether an address is one of this machine's.
pub(crate) fn is_own(address: IpAddr) -> bool {
    own_addresses().contains(&address.to_canonical())
}

/// The machine's addresses, of interfaces that are up. Without link-local IPv6 addresses, which
/// mean nothing without the name of an interface.
fn own_addresses() -> Vec<IpAddr> {
    let mut found = Vec::new();
    for interface in nix::ifaddrs::getifaddrs().into_iter().flatten() {
        let Some(address) = interface.address else { continue };
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
        let Some(ip) = v4.or(v6) else { continue };
        let local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if interface.flags.contains(InterfaceFlags::IFF_UP) && !local && !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, address) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]:0", "[::1]:0"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("LocalHost:8080", "127.0.0.1:8080"),
            (":8080", "0.0.0.0:8080"),
            ("*:8080", "0.0.0.0:8080"),
            ("[::]:443", "[::]:443"),
        ] {
            assert_eq!(parse(text), Ok(address.parse().unwrap()), "{text}");
        }
        for text in ["", "8080", "localhost", "localhost:", ":+1", ":99999", "example.org:80", "::"]
        {
            assert!(parse(text).unwrap_err().contains("write it like"), "{text}");
        }
    }

    #[test]
    fn a_listener_is_reached_at_addresses_that_can_be_connected_to() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(from_here(at("0.0.0.0:1")), at("127.0.0.1:1"));
        assert_eq!(from_here(at("[::]:1")), at("[::1]:1"));
        assert_eq!(from_here(at("192.0.2.1:1")), at("192.0.2.1:1"));
        assert_eq!(from_elsewhere(at("127.0.0.1:1")), []);
        assert_eq!(from_elsewhere(at("192.0.2.1:1")), [at("192.0.2.1:1")]);
        for address in from_elsewhere(at("0.0.0.0:1")) {
            assert!(address.is_ipv4() && !address.ip().is_loopback(), "{address}");
            assert!(!address.ip().is_unspecified(), "{address}");
        }
    }
}
