//! Sockets between two programs on one machine, such as a relay and the proxy that ends TLS for it.
//!
//! Where the system's congestion control paces what it sends, as BBR does, it paces loopback, too:
//! every 64 KiB waits for a timer and wakes its receiver alone, and a third of a relay's time goes
//! into that. There is no congestion on loopback, so what stays there takes an algorithm that does
//! not pace. All other sockets keep what the system chose.

use std::net::IpAddr;

use socket2::SockRef;

/// The one algorithm that every Linux kernel has and lets anyone choose.
#[cfg(target_os = "linux")]
const WITHOUT_PACING: &[u8] = b"reno";

/// For a socket that listens on this address, or is about to connect to it: once connected, it is
/// too late. One that refuses is merely slower.
pub fn spare_loopback<'s>(socket: impl Into<SockRef<'s>>, address: IpAddr) {
    #[cfg(target_os = "linux")]
    if address.to_canonical().is_loopback() {
        let _ = socket.into().set_tcp_congestion(WITHOUT_PACING);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (socket.into(), address);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn algorithm<'s>(socket: impl Into<SockRef<'s>>) -> Vec<u8> {
        let mut name = socket.into().tcp_congestion().expect("Linux knows it");
        name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
        name
    }

    #[test]
    fn loopback_is_not_paced_and_all_else_is_left_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let chosen = algorithm(&listener);
        spare_loopback(&listener, "0.0.0.0".parse().unwrap());
        spare_loopback(&listener, "192.0.2.1".parse().unwrap());
        assert_eq!(algorithm(&listener), chosen);
        for near in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            spare_loopback(&listener, near.parse().unwrap());
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            assert_eq!(algorithm(&accepted), WITHOUT_PACING);
        }
    }
}
