//! The rate limits for new connections, overall and for each address (SBRP-RELAY-07).

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bowline_net::loopback::is_loopback;
use bowline_net::peer::network;
use bowline_net::rate::{Beyond, Bucket, Rate, Throttle};

/// Addresses tracked at once. When more connect within a second, the newest have no limit of their
/// own; the overall limit still applies.
const ADDRESSES: usize = 65_536;

#[derive(Debug)]
pub(crate) struct ConnectionRate {
    all: Mutex<Bucket>,
    each: Option<Throttle<IpAddr>>,
}

impl ConnectionRate {
    /// `all` and `each` are connections per second; 0 for no limit.
    pub(crate) fn new(all: u32, each: u32, now: Instant) -> Self {
        let each = Rate::per_second(each);
        Self {
            all: Mutex::new(Bucket::new(Rate::per_second(all), now)),
            each: each.map(|rate| Throttle::new(rate, ADDRESSES, Beyond::Pass)),
        }
    }

    /// Whether one more connection from this address is accepted. Connections from loopback count
    /// against the overall limit only.
    pub(crate) fn admit(&self, from: IpAddr, now: Instant) -> bool {
        let own = match &self.each {
            Some(each) if !is_loopback(from) => each.take(network(from), now).is_ok(),
            _ => true,
        };
        own && self.all.lock().unwrap_or_else(PoisonError::into_inner).take(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([203, 0, 113, last])
    }

    #[test]
    fn sbrp_relay_07_one_address_does_not_use_up_what_others_have() {
        let (connection_rate, now) = (ConnectionRate::new(100, 2, Instant::now()), Instant::now());
        assert!(connection_rate.admit(address(1), now) && connection_rate.admit(address(1), now));
        assert!(!connection_rate.admit(address(1), now), "its own limit");
        assert!(connection_rate.admit(address(2), now), "another's is untouched");
        assert!(connection_rate.admit(address(1), now + Duration::from_millis(600)), "it refills");
    }

    #[test]
    fn sbrp_relay_07_all_together_have_a_limit_too() {
        let (connection_rate, now) = (ConnectionRate::new(3, 2, Instant::now()), Instant::now());
        let came = (0..10).filter(|last| connection_rate.admit(address(*last), now)).count();
        assert_eq!(came, 3);
        assert!(
            !connection_rate.admit("127.0.0.1".parse().unwrap(), now),
            "those of this machine, too"
        );
    }

    #[test]
    fn sbrp_relay_07_addresses_of_one_network_share_a_limit() {
        let (connection_rate, now) = (ConnectionRate::new(0, 1, Instant::now()), Instant::now());
        for (from, admitted) in [
            ("203.0.113.1", true),
            ("203.0.113.1", false),
            ("::ffff:203.0.113.1", false),
            ("203.0.113.2", true),
            ("2001:db8:1:2::1", true),
            ("2001:db8:1:2:ffff::2", false),
            ("2001:db8:1:3::1", true),
            ("127.0.0.1", true),
            ("127.0.0.1", true),
            ("::1", true),
            ("::1", true),
        ] {
            assert_eq!(connection_rate.admit(from.parse().unwrap(), now), admitted, "{from}");
        }
    }
}
