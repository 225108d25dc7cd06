//! Rate limits: token buckets, single and per key.
//!
//! By hand, because existing crates (governor) do not return the number of available tokens, which
//! a relay needs to read a batch of frames, cannot check without taking, and do not bound the
//! number of keys.
//!
//! A bucket is stored as the instant at which it will be full again, so full buckets need no entry.
//! Time is passed in.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A burst, and one more token per interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub burst: u32,
    pub every: Duration,
}

impl Rate {
    /// `count` per second, with a burst of one second's worth. None (no limit) if it is 0.
    pub fn per_second(count: u32) -> Option<Self> {
        let every = Duration::from_secs(1).checked_div(count)?;
        Some(Self { burst: count, every: every.max(Duration::from_nanos(1)) })
    }

    /// How long an empty bucket takes to fill.
    fn whole(self) -> Duration {
        self.every.saturating_mul(self.burst)
    }

    /// When a bucket is full again after taking one token.
    fn after_one(self, full_at: Option<Instant>, now: Instant) -> Result<Instant, TooOften> {
        let full_at = full_at.map_or(now, |full_at| full_at.max(now)) + self.every;
        let over = (full_at - now).saturating_sub(self.whole());
        if over.is_zero() { Ok(full_at) } else { Err(TooOften(over)) }
    }
}

/// The rate is exceeded: how long to wait before a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooOften(pub Duration);

/// A single token bucket.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// None for no limit.
    rate: Option<Rate>,
    full_at: Instant,
}

impl Bucket {
    pub fn new(rate: Option<Rate>, now: Instant) -> Self {
        Self { rate, full_at: now }
    }

    /// The number of available tokens.
    pub fn available(&mut self, now: Instant) -> usize {
        let Some(rate) = self.rate else { return usize::MAX };
        self.full_at = self.full_at.max(now);
        let left = rate.whole().saturating_sub(self.full_at - now);
        (left.as_nanos() / rate.every.as_nanos().max(1)) as usize
    }

    /// Takes `count` tokens, at most what [`Bucket::available`] returned.
    pub fn spend(&mut self, count: usize) {
        if let Some(rate) = self.rate {
            let count = count.min(rate.burst as usize) as u32;
            self.full_at += rate.every.saturating_mul(count);
        }
    }

    /// When the next token is available, if none was.
    pub fn refilled(&self, now: Instant) -> Instant {
        let Some(rate) = self.rate else { return now };
        let whole = rate.every.saturating_mul(rate.burst.saturating_sub(1));
        self.full_at.checked_sub(whole).map_or(now, |at| at.max(now))
    }

    /// Takes one token, if available.
    pub fn take(&mut self, now: Instant) -> bool {
        let free = self.available(now) > 0;
        if free {
            self.spend(1);
        }
        free
    }
}

/// What happens to new keys when the limit of keys is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// They share one bucket.
    Share,
    /// They are not limited; something else bounds their number.
    Pass,
}

/// A bucket per key, with a limit on the number of keys (G11).
#[derive(Debug)]
pub struct Throttle<K> {
    rate: Rate,
    most: usize,
    beyond: Beyond,
    buckets: Mutex<Buckets<K>>,
}

#[derive(Debug)]
struct Buckets<K> {
    full_at: HashMap<K, Instant>,
    /// The shared bucket of keys without one of their own.
    shared: Option<Instant>,
    swept: Option<Instant>,
}

/// Removing full buckets visits all of them: not more often than this.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

impl<K: Hash + Eq> Throttle<K> {
    pub fn new(rate: Rate, most: usize, beyond: Beyond) -> Self {
        let buckets = Buckets { full_at: HashMap::new(), shared: None, swept: None };
        Self { rate, most, beyond, buckets: Mutex::new(buckets) }
    }

    /// Checks the limit without taking a token.
    pub fn look(&self, key: &K, now: Instant) -> Result<(), TooOften> {
        let buckets = self.buckets();
        let full_at = match buckets.full_at.get(key) {
            Some(full_at) => Some(*full_at),
            None if buckets.full_at.len() < self.most => None,
            None => buckets.shared,
        };
        self.rate.after_one(full_at, now).map(drop)
    }

    /// Takes one token, if available.
    pub fn take(&self, key: K, now: Instant) -> Result<(), TooOften> {
        let mut buckets = self.buckets();
        if let Some(full_at) = buckets.full_at.get_mut(&key) {
            *full_at = self.rate.after_one(Some(*full_at), now)?;
            return Ok(());
        }
        if buckets.full_at.len() >= self.most {
            buckets.sweep(now);
        }
        if buckets.full_at.len() < self.most {
            let full_at = self.rate.after_one(None, now)?;
            buckets.full_at.insert(key, full_at);
        } else if self.beyond == Beyond::Share {
            buckets.shared = Some(self.rate.after_one(buckets.shared, now)?);
        }
        Ok(())
    }

    fn buckets(&self) -> MutexGuard<'_, Buckets<K>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq> Buckets<K> {
    /// Removes full buckets.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_none_or(|swept| now >= swept + SWEEP_EVERY) {
            self.full_at.retain(|_, full_at| *full_at > now);
            self.swept = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MOST: usize = 1000;

    fn throttle<K: Hash + Eq>(burst: u32, beyond: Beyond) -> Throttle<K> {
        Throttle::new(Rate { burst, every: SECOND }, MOST, beyond)
    }

    #[test]
    fn sbrp_relay_07_a_bucket_gives_a_seconds_worth_and_refills() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Rate::per_second(10), start);
        assert_eq!(bucket.available(start), 10);
        bucket.spend(10);
        assert_eq!(bucket.available(start), 0);
        let next = bucket.refilled(start);
        assert!(next > start && next < start + Duration::from_millis(101));
        assert_eq!(bucket.available(next), 1);
        assert_eq!(bucket.available(start + Duration::from_secs(60)), 10, "never more");
    }

    #[test]
    fn odd_rates_are_kept_too() {
        let start = Instant::now();
        for rate in [1, 3, 7, 60_000, 999_983] {
            let mut bucket = Bucket::new(Rate::per_second(rate), start);
            assert_eq!(bucket.available(start), rate as usize);
            bucket.spend(rate as usize);
            assert!(!bucket.take(start), "{rate}");
            assert!(bucket.take(bucket.refilled(start)), "{rate}");
        }
    }

    #[test]
    fn no_limit_is_no_limit() {
        let now = Instant::now();
        let mut bucket = Bucket::new(Rate::per_second(0), now);
        bucket.spend(1 << 30);
        assert_eq!(bucket.available(now), usize::MAX);
        assert_eq!(bucket.refilled(now), now);
    }

    #[test]
    fn a_burst_is_let_through_and_then_one_at_a_time() {
        let (throttle, now) = (throttle(3, Beyond::Share), Instant::now());
        for _ in 0..3 {
            assert_eq!(throttle.take("a", now), Ok(()));
        }
        assert_eq!(throttle.take("a", now), Err(TooOften(SECOND)));
        assert_eq!(throttle.look(&"a", now), Err(TooOften(SECOND)));
        assert_eq!(throttle.take("b", now), Ok(()), "others are not held up");
        let later = now + SECOND;
        assert_eq!(throttle.take("a", later), Ok(()));
        assert_eq!(throttle.take("a", later), Err(TooOften(SECOND)));
    }

    #[test]
    fn looking_takes_nothing_and_being_refused_costs_nothing() {
        let (throttle, now) = (throttle(1, Beyond::Share), Instant::now());
        for _ in 0..5 {
            assert_eq!(throttle.look(&"a", now), Ok(()));
        }
        assert_eq!(throttle.take("a", now), Ok(()));
        for _ in 0..5 {
            assert_eq!(throttle.take("a", now), Err(TooOften(SECOND)));
        }
        assert_eq!(throttle.take("a", now + SECOND), Ok(()));
    }

    #[test]
    fn g11_newcomers_beyond_the_last_place_share_a_bucket() {
        let (throttle, now) = (throttle(2, Beyond::Share), Instant::now());
        for key in 0..MOST {
            throttle.take(key, now).unwrap();
        }
        assert_eq!(throttle.take(MOST, now), Ok(()));
        assert_eq!(throttle.take(MOST + 1, now), Ok(()));
        assert!(throttle.take(MOST + 2, now).is_err() && throttle.look(&usize::MAX, now).is_err());
        assert_eq!(throttle.buckets().full_at.len(), MOST);
        assert_eq!(throttle.take(7, now), Ok(()), "those with a place keep theirs");

        let later = now + 2 * SECOND;
        assert_eq!(throttle.take(MOST, later), Ok(()));
        assert_eq!(throttle.buckets().full_at.len(), 1, "full ones are forgotten");
    }

    #[test]
    fn g11_newcomers_beyond_the_last_place_may_pass() {
        let (throttle, now) = (throttle(1, Beyond::Pass), Instant::now());
        for key in 0..MOST {
            throttle.take(key, now).unwrap();
        }
        assert!((MOST..MOST + 10).all(|key| throttle.take(key, now).is_ok()));
        assert_eq!(throttle.buckets().full_at.len(), MOST);
        assert!(throttle.take(7, now).is_err(), "those that are known are held to their rate");
    }
}
