//! Rate limits for wrong API keys and unknown devices, and for tokens.
//!
//! Invariant: wrong keys, however many and from wherever, never cost a valid key or device anything. Many
//! callers may share one address, and whoever wants to lock them out would only have to guess there.

use std::hash::Hash;
use std::net::IpAddr;
use std::time::Instant;

use bowline_net::rate::{Beyond, Rate, Throttle, TooOften};

use bowline_sbrp::identity::IdentityKey;

use super::api_key::KeyHash;
use super::config::ControlLimits;

#[derive(Debug)]
pub(super) struct Throttles {
    failures_by_source: Throttle<IpAddr>,
    failures_by_key: Throttle<KeyHash>,
    tokens_by_source: Throttle<IpAddr>,
    tokens_by_key: Throttle<KeyHash>,
    tokens_by_device: Throttle<[u8; 32]>,
}

/// The most addresses, or keys, that have their own limit.
const MOST: usize = 10_000;

/// Further keys and addresses share one limit.
fn throttle<K: Hash + Eq>(rate: Rate) -> Throttle<K> {
    Throttle::new(rate, MOST, Beyond::Share)
}

impl Throttles {
    pub(super) fn new(limits: &ControlLimits) -> Self {
        Self {
            failures_by_source: throttle(limits.failures_per_address),
            // Not shared: it is asked before a key is known to be wrong.
            failures_by_key: Throttle::new(limits.failures_per_key, MOST, Beyond::Pass),
            tokens_by_source: throttle(limits.tokens_per_address),
            tokens_by_key: throttle(limits.tokens_per_key),
            tokens_by_device: throttle(limits.tokens_per_device),
        }
    }

    /// Checked before a key is looked up: one that was wrong so often that it need not be again. No
    /// key that was ever wrong becomes valid.
    pub(super) fn may_look_up(&self, key: &KeyHash) -> Result<(), TooOften> {
        self.failures_by_key.look(key, Instant::now())
    }

    /// Counts a wrong API key; an error if the address showed too many.
    pub(super) fn failed(&self, from: IpAddr, key: KeyHash) -> Result<(), TooOften> {
        let now = Instant::now();
        let _ = self.failures_by_key.take(key, now);
        self.failures_by_source.take(from, now)
    }

    /// Counts an unknown device; an error if the address showed too many wrong keys and devices.
    pub(super) fn failed_device(&self, from: IpAddr) -> Result<(), TooOften> {
        self.failures_by_source.take(from, Instant::now())
    }

    /// Checked and counted before a token is issued to a valid key.
    pub(super) fn may_issue(&self, from: IpAddr, key: KeyHash) -> Result<(), TooOften> {
        let now = Instant::now();
        self.tokens_by_source.take(from, now)?;
        self.tokens_by_key.take(key, now)
    }

    /// Checked and counted before a token is issued to a device that the daemon has.
    pub(super) fn may_issue_to_device(
        &self,
        from: IpAddr,
        device: &IdentityKey,
    ) -> Result<(), TooOften> {
        let now = Instant::now();
        self.tokens_by_source.take(from, now)?;
        self.tokens_by_device.take(*device.as_bytes(), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g11_no_number_of_wrong_keys_counts_against_another_key() {
        let throttles = Throttles::new(&ControlLimits::default());
        let from = IpAddr::from([203, 0, 113, 9]);
        let refused = (0..2 * MOST)
            .map(|guess| throttles.failed(from, KeyHash::of(&format!("bck_guess-{guess}"))))
            .filter(Result::is_err)
            .count();
        assert!(refused > MOST, "the address is slowed down");
        assert_eq!(throttles.may_look_up(&KeyHash::of("bck_right")), Ok(()));
        assert_eq!(throttles.may_issue(from, KeyHash::of("bck_right")), Ok(()));
    }
}
