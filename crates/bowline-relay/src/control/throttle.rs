//! How often something may happen, for each of many that do it.
//!
//! A bucket is kept as the one moment at which it will be full again, so those that are full need
//! no place. Time is passed in.
//!
//! Invariants
//! - Memory is bounded: newcomers beyond the last place share one bucket, and are thus slowed down
//!   rather than let through.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many at once, and one more each time this long has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub burst: u32,
    pub every: Duration,
}

/// The most buckets that are kept apart.
const PLACES: usize = 10_000;
/// Looking for full buckets walks all of them: not more often than this.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Throttle<K> {
    rate: Rate,
    buckets: Mutex<Buckets<K>>,
}

#[derive(Debug)]
struct Buckets<K> {
    full_at: HashMap<K, Instant>,
    /// The bucket of all that have none of their own.
    shared: Option<Instant>,
    swept: Option<Instant>,
}

/// How long to wait before trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooOften(pub(super) Duration);

impl<K: Hash + Eq> Throttle<K> {
    pub(super) fn new(rate: Rate) -> Self {
        let buckets = Buckets { full_at: HashMap::new(), shared: None, swept: None };
        Self { rate, buckets: Mutex::new(buckets) }
    }

    /// Whether one more would be too many; takes none.
    pub(super) fn look(&self, key: &K, now: Instant) -> Result<(), TooOften> {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = match buckets.full_at.get(key) {
            Some(full_at) => Some(*full_at),
            None if buckets.full_at.len() < PLACES => None,
            None => buckets.shared,
        };
        self.after(full_at, now).map(drop)
    }

    /// Takes one, if there is one.
    pub(super) fn take(&self, key: K, now: Instant) -> Result<(), TooOften> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(full_at) = buckets.full_at.get_mut(&key) {
            *full_at = self.after(Some(*full_at), now)?;
            return Ok(());
        }
        buckets.make_room(now);
        if buckets.full_at.len() < PLACES {
            let full_at = self.after(None, now)?;
            buckets.full_at.insert(key, full_at);
        } else {
            buckets.shared = Some(self.after(buckets.shared, now)?);
        }
        Ok(())
    }

    /// When the bucket is full again once one more is taken.
    fn after(&self, full_at: Option<Instant>, now: Instant) -> Result<Instant, TooOften> {
        let full_at = full_at.map_or(now, |full_at| full_at.max(now)) + self.rate.every;
        let over = (full_at - now).saturating_sub(self.rate.every * self.rate.burst);
        if over.is_zero() { Ok(full_at) } else { Err(TooOften(over)) }
    }
}

impl<K: Hash + Eq> Buckets<K> {
    fn make_room(&mut self, now: Instant) {
        let lately = self.swept.is_some_and(|swept| now < swept + SWEEP_EVERY);
        if self.full_at.len() >= PLACES && !lately {
            self.full_at.retain(|_, full_at| *full_at > now);
            self.swept = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn throttle<K: Hash + Eq>(burst: u32) -> Throttle<K> {
        Throttle::new(Rate { burst, every: SECOND })
    }

    #[test]
    fn a_burst_is_let_through_and_then_one_at_a_time() {
        let (throttle, now) = (throttle(3), Instant::now());
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
        let (throttle, now) = (throttle(1), Instant::now());
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
        let (throttle, now) = (throttle(2), Instant::now());
        for key in 0..PLACES {
            throttle.take(key, now).unwrap();
        }
        assert_eq!(throttle.take(PLACES, now), Ok(()));
        assert_eq!(throttle.take(PLACES + 1, now), Ok(()));
        assert!(
            throttle.take(PLACES + 2, now).is_err() && throttle.look(&usize::MAX, now).is_err()
        );
        assert_eq!(throttle.buckets.lock().unwrap().full_at.len(), PLACES);
        assert_eq!(throttle.take(7, now), Ok(()), "those with a place keep theirs");

        let later = now + 2 * SECOND;
        assert_eq!(throttle.take(PLACES, later), Ok(()));
        assert_eq!(throttle.buckets.lock().unwrap().full_at.len(), 1, "full ones are forgotten");
    }
}
