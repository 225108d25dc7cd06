//! Ports that the system gives to nobody else while a server is down.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the system hands out, where a client that knocks at a closed port could even be
/// connected to itself.
const FIRST: u16 = 22_000;
const PORTS: u16 = 8_000;

/// A free port; each call gives another one.
pub fn quiet_port() -> u16 {
    quiet_ports(1)
}

/// The first of so many free ports in a row.
pub fn quiet_ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time begin at different places.
    let begin = (std::process::id() % 400) as u16 * 20;
    loop {
        let port = FIRST + (begin + NEXT.fetch_add(count, Ordering::Relaxed)) % PORTS;
        if (port..port + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return port;
        }
    }
}
