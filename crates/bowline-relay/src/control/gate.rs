//! Who is turned away before anything is looked up: those who guess keys, and those who ask for
//! more tokens than anyone needs.

use std::net::IpAddr;
use std::time::Instant;

use super::api_key::KeyHash;
use super::config::Limits;
use super::throttle::{Throttle, TooOften};

/// Where a request comes from, as far as limits care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Source(IpAddr);

impl Source {
    /// A household has one IPv4 address, or 2^64 of IPv6: those count as one.
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.into()),
            IpAddr::V6(address) => {
                let mut parts = address.segments();
                parts[4..].fill(0);
                Self(IpAddr::V6(parts.into()))
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Gate {
    failures_by_source: Throttle<Source>,
    failures_by_key: Throttle<KeyHash>,
    tokens_by_source: Throttle<Source>,
    tokens_by_key: Throttle<KeyHash>,
}

impl Gate {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            failures_by_source: Throttle::new(limits.failures_per_address),
            failures_by_key: Throttle::new(limits.failures_per_key),
            tokens_by_source: Throttle::new(limits.tokens_per_address),
            tokens_by_key: Throttle::new(limits.tokens_per_key),
        }
    }

    /// Before a key is looked up. Requests under way at the same time may pass together; that
    /// overshoots by the number of connections at most, which helps nobody who guesses.
    pub(super) fn may_try(&self, from: Source, key: &KeyHash) -> Result<(), TooOften> {
        let now = Instant::now();
        self.failures_by_source.look(&from, now)?;
        self.failures_by_key.look(key, now)
    }

    /// The key was none of ours.
    pub(super) fn failed(&self, from: Source, key: KeyHash) {
        let now = Instant::now();
        let _ = self.failures_by_source.take(from, now);
        let _ = self.failures_by_key.take(key, now);
    }

    /// Before a token is made.
    pub(super) fn may_issue(&self, from: Source, key: KeyHash) -> Result<(), TooOften> {
        let now = Instant::now();
        self.tokens_by_source.take(from, now)?;
        self.tokens_by_key.take(key, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_household_count_as_one() {
        let source = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(source("2001:db8:1:2::3"), source("2001:db8:1:2:ffff::4"));
        assert_ne!(source("2001:db8:1:2::3"), source("2001:db8:1:3::3"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    }
}
