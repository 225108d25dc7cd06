//! How often something may happen: a bucket that fills with time (SBRP-RELAY-07).
//!
//! Pure: the time is passed in.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A second's worth of something, refilled evenly.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// A second; 0 for no limit.
    rate: u32,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn new(rate: u32, now: Instant) -> Self {
        Self { rate, tokens: f64::from(rate), filled: now }
    }

    /// How many may happen now.
    pub(crate) fn available(&mut self, now: Instant) -> usize {
        if self.rate == 0 {
            return usize::MAX;
        }
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        let rate = f64::from(self.rate);
        self.tokens = (self.tokens + passed * rate).min(rate);
        self.filled = now;
        self.tokens as usize
    }

    /// Records what happened, no more than was available.
    pub(crate) fn spend(&mut self, count: usize) {
        self.tokens = (self.tokens - count as f64).max(0.0);
    }

    /// When the next may happen, if none was available.
    pub(crate) fn refilled(&self, now: Instant) -> Instant {
        if self.rate == 0 {
            return now;
        }
        let missing = (1.0 - self.tokens).max(0.0) / f64::from(self.rate);
        // A touch later, so that it is there when it is looked for.
        now + Duration::from_secs_f64(missing) + Duration::from_micros(50)
    }

    fn try_one(&mut self, now: Instant) -> bool {
        let free = self.available(now) > 0;
        if free {
            self.spend(1);
        }
        free
    }

    fn is_full(&mut self, now: Instant) -> bool {
        self.available(now) >= self.rate as usize
    }
}

/// New connections: so many in all, so many from each address.
#[derive(Debug)]
pub(crate) struct Arrivals<A> {
    all: Bucket,
    each: u32,
    known: HashMap<A, Bucket>,
}

/// Addresses remembered at once. When more come within a second, the newest are not judged by
/// themselves: the limit for all still holds.
const ADDRESSES: usize = 65_536;

impl<A: Eq + Hash> Arrivals<A> {
    pub(crate) fn new(all: u32, each: u32, now: Instant) -> Self {
        Self { all: Bucket::new(all, now), each, known: HashMap::new() }
    }

    /// Whether one more may come, from this address or from one that is not judged.
    pub(crate) fn admit(&mut self, from: Option<A>, now: Instant) -> bool {
        if let Some(from) = from.filter(|_| self.each > 0) {
            if self.known.len() >= ADDRESSES && !self.known.contains_key(&from) {
                // A full bucket remembers nothing.
                self.known.retain(|_, bucket| !bucket.is_full(now));
            }
            if self.known.len() < ADDRESSES || self.known.contains_key(&from) {
                let bucket = self.known.entry(from).or_insert_with(|| Bucket::new(self.each, now));
                if !bucket.try_one(now) {
                    return false;
                }
            }
        }
        self.all.try_one(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbrp_relay_07_a_bucket_gives_a_seconds_worth_and_refills() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, start);
        assert_eq!(bucket.available(start), 10);
        bucket.spend(10);
        assert_eq!(bucket.available(start), 0);
        let next = bucket.refilled(start);
        assert!(next > start && next < start + Duration::from_millis(101));
        assert_eq!(bucket.available(next), 1);
        assert_eq!(bucket.available(start + Duration::from_secs(60)), 10, "never more");
    }

    #[test]
    fn no_limit_is_no_limit() {
        let now = Instant::now();
        let mut bucket = Bucket::new(0, now);
        bucket.spend(1 << 30);
        assert_eq!(bucket.available(now), usize::MAX);
        assert_eq!(bucket.refilled(now), now);
    }

    #[test]
    fn sbrp_relay_07_one_address_does_not_use_up_what_others_have() {
        let now = Instant::now();
        let mut arrivals = Arrivals::new(100, 2, now);
        let from = |address: u8, arrivals: &mut Arrivals<u8>| arrivals.admit(Some(address), now);
        assert!(from(1, &mut arrivals) && from(1, &mut arrivals));
        assert!(!from(1, &mut arrivals), "its own limit");
        assert!(from(2, &mut arrivals), "another's is untouched");
        assert!(arrivals.admit(Some(1), now + Duration::from_millis(600)), "it refills");
    }

    #[test]
    fn sbrp_relay_07_all_together_have_a_limit_too() {
        let now = Instant::now();
        let mut arrivals = Arrivals::new(3, 2, now);
        let came = (0..10_u8).filter(|address| arrivals.admit(Some(*address), now)).count();
        assert_eq!(came, 3);
        assert!(!arrivals.admit(None, now), "those that are not judged count too");
    }

    #[test]
    fn addresses_are_forgotten_when_they_say_nothing() {
        let now = Instant::now();
        let mut arrivals = Arrivals::new(0, 5, now);
        for address in 0..ADDRESSES {
            assert!(arrivals.admit(Some(address), now));
        }
        assert!(arrivals.admit(Some(ADDRESSES), now), "no room, no judgement");
        assert_eq!(arrivals.known.len(), ADDRESSES);
        assert!(arrivals.admit(Some(ADDRESSES), now + Duration::from_secs(2)));
        assert_eq!(arrivals.known.len(), 1);
    }
}
