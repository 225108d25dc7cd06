//! How long gateways have waited for a session to rest, which they ask for again and again.
//!
//! Of this process alone: where another replica is asked, the time begins anew.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bowline_sbp::federation::ReservationId;

/// Whoever has not asked for so long does not wait any more.
const FORGOTTEN: Duration = Duration::from_secs(120);
/// The most that are remembered; others wait until some are forgotten.
const MOST: usize = 1024;

#[derive(Debug)]
pub(crate) struct Waiting {
    patience: Duration,
    /// Since when, and when they asked last.
    all: Mutex<HashMap<ReservationId, (Instant, Instant)>>,
}

impl Waiting {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, all: Mutex::default() }
    }

    /// One asked, and the session does not rest. Whether it has waited long enough.
    pub(crate) fn asks(&self, id: ReservationId, now: Instant) -> bool {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (_, last)| now.saturating_duration_since(*last) < FORGOTTEN);
        if all.len() >= MOST && !all.contains_key(&id) {
            return false;
        }
        let (since, last) = all.entry(id).or_insert((now, now));
        *last = now;
        now.saturating_duration_since(*since) >= self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn sbp_l6_05_who_has_asked_for_long_enough_waits_no_longer() {
        let (waiting, begun) = (Waiting::new(Duration::from_secs(30)), Instant::now());
        let id = |n| ReservationId(Uuid::from_u128(n));
        let at = |second| begun + Duration::from_secs(second);
        assert!(!waiting.asks(id(1), at(0)));
        assert!(!waiting.asks(id(1), at(29)));
        assert!(!waiting.asks(id(2), at(29)), "each for itself");
        assert!(waiting.asks(id(1), at(30)));
        assert!(!waiting.asks(id(1), at(200)), "it had given up");
    }

    #[test]
    fn g11_only_so_many_are_remembered() {
        let (waiting, now) = (Waiting::new(Duration::ZERO), Instant::now());
        for n in 0..MOST {
            assert!(waiting.asks(ReservationId(Uuid::from_u128(n as u128)), now));
        }
        assert!(!waiting.asks(ReservationId(Uuid::from_u128(u128::MAX)), now));
        assert!(waiting.asks(ReservationId(Uuid::from_u128(u128::MAX)), now + FORGOTTEN));
    }
}
