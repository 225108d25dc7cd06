//! The rate limits for new connections, overall and for each address (SBRP-RELAY-07).
//!
//! Invariant: connections with a refused token have limits of their own, so that they cost those with a
//! valid one nothing. Many callers may share one address, and whoever wants to lock them out would only
//! have to show wrong tokens there.

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
    valid: Limits,
    refused: Limits,
}

impl ConnectionRate {
    /// `all` and `each` are connections per second; 0 for no limit.
    pub(crate) fn new(all: u32, each: u32, now: Instant) -> Self {
        Self { valid: Limits::new(all, each, now), refused: Limits::new(all, each, now) }
    }

    /// Whether one more connection with a valid token from this address is accepted. Connections from
    /// loopback count against the overall limit only.
    pub(crate) fn admit(&self, from: IpAddr, now: Instant) -> bool {
        self.valid.take(from, now)
    }

    /// Counts a refused token; whether it is told why.
    pub(crate) fn refused(&self, from: IpAddr, now: Instant) -> bool {
        self.refused.take(from, now)
    }
}

#[derive(Debug)]
struct Limits {
    all: Mutex<Bucket>,
    each: Option<Throttle<IpAddr>>,
}

impl Limits {
    fn new(all: u32, each: u32, now: Instant) -> Self {
        let each = Rate::per_second(each);
        Self {
            all: Mutex::new(Bucket::new(Rate::per_second(all), now)),
            each: each.map(|rate| Throttle::new(rate, ADDRESSES, Beyond::Pass)),
        }
    }

    fn take(&self, from: IpAddr, now: Instant) -> bool {
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
    fn g11_no_number_of_refused_tokens_counts_against_a_valid_one() {
        let (connection_rate, now) = (ConnectionRate::new(10, 5, Instant::now()), Instant::now());
        let told = (0..1000).filter(|_| connection_rate.refused(address(1), now)).count();
        assert_eq!(told, 5, "further ones are turned away");
        assert!(connection_rate.admit(address(1), now));
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
