//! Rate limits that are checked before the registry is read: for wrong API keys, and for tokens.

use std::hash::Hash;
use std::net::IpAddr;
use std::time::Instant;

use bowline_net::rate::{Beyond, Rate, Throttle, TooOften};

use super::api_key::KeyHash;
use super::config::ControlLimits;

#[derive(Debug)]
pub(super) struct Throttles {
    failures_by_source: Throttle<IpAddr>,
    failures_by_key: Throttle<KeyHash>,
    tokens_by_source: Throttle<IpAddr>,
    tokens_by_key: Throttle<KeyHash>,
}

/// The most addresses, or keys, that have their own limit; further ones share one.
const MOST: usize = 10_000;

fn throttle<K: Hash + Eq>(rate: Rate) -> Throttle<K> {
    Throttle::new(rate, MOST, Beyond::Share)
}

impl Throttles {
    pub(super) fn new(limits: &ControlLimits) -> Self {
        Self {
            failures_by_source: throttle(limits.failures_per_address),
            failures_by_key: throttle(limits.failures_per_key),
            tokens_by_source: throttle(limits.tokens_per_address),
            tokens_by_key: throttle(limits.tokens_per_key),
        }
    }

    /// Checked before a key is looked up. Concurrent requests may pass together; that exceeds the
    /// limit by the number of connections at most, which does not help in guessing a key.
    pub(super) fn may_try(&self, from: IpAddr, key: &KeyHash) -> Result<(), TooOften> {
        let now = Instant::now();
        self.failures_by_source.look(&from, now)?;
        self.failures_by_key.look(key, now)
    }

    /// Counts a wrong API key.
    pub(super) fn failed(&self, from: IpAddr, key: KeyHash) {
        let now = Instant::now();
        let _ = self.failures_by_source.take(from, now);
        let _ = self.failures_by_key.take(key, now);
    }

    /// Checked and counted before a token is issued.
    pub(super) fn may_issue(&self, from: IpAddr, key: KeyHash) -> Result<(), TooOften> {
        let now = Instant::now();
        self.tokens_by_source.take(from, now)?;
        self.tokens_by_key.take(key, now)
    }
}
