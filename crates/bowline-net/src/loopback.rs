//! Loopback: addresses, host names and URLs of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use socket2::SockRef;
use url::{Host, Url};

/// The congestion control that every Linux kernel has, that needs no privilege and does not pace.
#[cfg(target_os = "linux")]
const WITHOUT_PACING: &[u8] = b"reno";

pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Whether it is the address that programs of this machine have unless they choose another one.
pub fn is_localhost(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address == Ipv4Addr::LOCALHOST,
        IpAddr::V6(address) => address == Ipv6Addr::LOCALHOST,
    }
}

/// Whether a host of a URL or a `Host` header is loopback. With or without a port.
pub fn is_loopback_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    // Subdomains of `localhost` are loopback, too (RFC 6761).
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse().is_ok_and(is_loopback)
        || host.parse().is_ok_and(is_loopback)
}

pub fn is_loopback_url(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => is_loopback(address.into()),
        Some(Host::Ipv6(address)) => is_loopback(address.into()),
        // Of WebSocket URLs the host may be an IP address that was not parsed as one.
        Some(Host::Domain(name)) => is_loopback_host(name),
        None => false,
    }
}

/// Disables pacing for a socket that listens on, or is about to connect to, a loopback address.
/// Must be called before connecting. Failure is ignored: the socket is merely slower.
///
/// Congestion controls with pacing, such as BBR, pace loopback, too: every 64 KiB wait for a timer
/// and wake the receiver, which costs a third of a relay's CPU time. All other sockets keep the
/// system's congestion control.
pub fn without_pacing<'s>(socket: impl Into<SockRef<'s>>, address: IpAddr) {
    #[cfg(target_os = "linux")]
    if is_loopback(address) {
        let _ = socket.into().set_tcp_congestion(WITHOUT_PACING);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (socket.into(), address);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_this_machine_are_known() {
        for host in [
            "127.0.0.1",
            "127.9.9.9:80",
            "localhost",
            "LocalHost:8080",
            "model.localhost",
            "[::1]:80",
            "::1",
            "[::1]",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in ["10.0.0.1", "localhost.example", "example", "", "0.0.0.0", "xlocalhost", "::"]
        {
            assert!(!is_loopback_host(host), "{host}");
        }
    }

    #[test]
    fn urls_of_this_machine_are_known_whatever_their_scheme() {
        for url in ["http://127.0.0.1:1/v1", "https://LocalHost", "ws://[::1]:1", "ws://127.1.2.3"]
        {
            assert!(is_loopback_url(&url.parse().unwrap()), "{url}");
        }
        for url in ["http://10.0.0.1", "https://localhost.example", "file:///etc", "unix:/tmp/x"] {
            assert!(!is_loopback_url(&url.parse().unwrap()), "{url}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn loopback_is_not_paced_and_all_else_is_left_alone() {
        use std::net::{TcpListener, TcpStream};

        fn algorithm<'s>(socket: impl Into<SockRef<'s>>) -> Vec<u8> {
            let mut name = socket.into().tcp_congestion().expect("Linux knows it");
            name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
            name
        }

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let chosen = algorithm(&listener);
        without_pacing(&listener, "0.0.0.0".parse().unwrap());
        without_pacing(&listener, "192.0.2.1".parse().unwrap());
        assert_eq!(algorithm(&listener), chosen);
        for near in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            without_pacing(&listener, near.parse().unwrap());
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            assert_eq!(algorithm(&accepted), WITHOUT_PACING);
        }
    }
}
