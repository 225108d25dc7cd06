//! How long to wait before connecting again.
//!
//! Apart and pure, because every client of this crate waits the same way: exponential with full
//! jitter, so that the surfaces of a gateway that restarts do not all return in the same instant.
//! The dice are an argument.
//!
//! Invariants
//! - A wait never exceeds the cap.
//! - The bound of the wait doubles with every failure until an attempt succeeds.

use std::time::Duration;

/// The bounds of the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The longest first wait; 250 ms by default.
    pub start: Duration,
    /// The longest wait of all; 15 s by default.
    pub cap: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { start: Duration::from_millis(250), cap: Duration::from_secs(15) }
    }
}

/// One client's attempts.
#[derive(Debug)]
pub(crate) struct Retry {
    backoff: Backoff,
    failures: u32,
}

impl Retry {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self { backoff, failures: 0 }
    }

    /// An attempt failed: wait this long, a share of the bound that `random` picks evenly.
    pub(crate) fn wait(&mut self, random: u32) -> Duration {
        let doubled = 1 << self.failures.min(31);
        let bound = self.backoff.start.saturating_mul(doubled).min(self.backoff.cap);
        self.failures = self.failures.saturating_add(1);
        // Below 1 even for the highest roll, so the product cannot overflow.
        bound.mul_f64(f64::from(random) / 2f64.powi(32))
    }

    /// An attempt succeeded.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u32 = 1 << 31;

    #[test]
    fn waits_double_up_to_the_cap_and_start_over_after_success() {
        let mut retry = Retry::new(Backoff::default());
        let mut halves = Vec::new();
        for _ in 0..9 {
            halves.push(retry.wait(HALF).as_millis());
        }
        assert_eq!(halves, [125, 250, 500, 1000, 2000, 4000, 7500, 7500, 7500]);
        retry.reset();
        assert_eq!(retry.wait(HALF).as_millis(), 125);
    }

    #[test]
    fn jitter_covers_everything_from_nothing_to_the_bound() {
        let backoff = Backoff::default();
        assert_eq!(Retry::new(backoff).wait(0), Duration::ZERO);
        let longest = Retry::new(backoff).wait(u32::MAX);
        assert!(longest <= backoff.start && longest > backoff.start.mul_f64(0.999));
    }

    #[test]
    fn no_number_of_failures_and_no_bounds_overflow() {
        let backoff = Backoff { start: Duration::MAX, cap: Duration::MAX };
        let mut retry = Retry { backoff, failures: u32::MAX - 1 };
        for _ in 0..3 {
            assert!(retry.wait(u32::MAX) > Duration::from_secs(1));
        }
    }
}
