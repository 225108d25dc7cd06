//! Back-off: how long to wait before a retry.
//!
//! Apart and pure, because every client waits the same way: exponential back-off with jitter in the
//! upper half of the bound. Many clients lose the same server at the same moment; jitter keeps them
//! from reconnecting at the same moment, and none reconnects at once. Randomness is an argument.
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

impl Backoff {
    /// How long to wait before the `attempt`-th retry, counted from 0. `random` selects the jitter.
    pub fn delay(self, attempt: u32, random: u32) -> Duration {
        let half = self.start.saturating_mul(2u32.saturating_pow(attempt)).min(self.cap) / 2;
        half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

/// The retries of one client.
#[derive(Debug)]
pub struct Retry {
    backoff: Backoff,
    failures: u32,
}

impl Retry {
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, failures: 0 }
    }

    /// An attempt failed: wait this long.
    pub fn wait(&mut self, random: u32) -> Duration {
        let delay = self.backoff.delay(self.failures, random);
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// An attempt succeeded.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff =
        Backoff { start: Duration::from_millis(500), cap: Duration::from_secs(30) };

    #[test]
    fn sbrp_daemon_07_waits_double_within_bounds_and_spread() {
        let seconds = |attempt, random| BACKOFF.delay(attempt, random).as_secs_f64();
        assert_eq!((seconds(0, 0), seconds(0, u32::MAX)), (0.25, 0.5));
        assert_eq!((seconds(3, 0), seconds(3, u32::MAX)), (2.0, 4.0));
        for attempt in [6, 7, 31, 32, u32::MAX] {
            assert_eq!((seconds(attempt, 0), seconds(attempt, u32::MAX)), (15.0, 30.0));
        }
        assert!(BACKOFF.delay(5, 1 << 30) < BACKOFF.delay(5, 1 << 31));
    }

    #[test]
    fn waits_start_over_after_success() {
        let mut retry = Retry::new(BACKOFF);
        let waits: Vec<_> = (0..8).map(|_| retry.wait(0).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
        retry.reset();
        assert_eq!(retry.wait(0).as_millis(), 250);
    }

    #[test]
    fn no_number_of_failures_and_no_bounds_overflow() {
        let backoff = Backoff { start: Duration::MAX, cap: Duration::MAX };
        let mut retry = Retry { backoff, failures: u32::MAX - 1 };
        for _ in 0..3 {
            assert!(retry.wait(u32::MAX / 2) > Duration::from_secs(1));
        }
    }
}
