//! When to try again, and when to renew.
//!
//! Pure: randomness and times are passed in. Many ends lose the same relay at the same moment;
//! what keeps them from coming back at the same moment is the jitter (SBRP-DAEMON-07).

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// How long to wait before the `attempt`-th try, counted from 0. Doubles up to 30 s; `random`
/// places it in the upper half of that time, so that no try comes at once.
pub fn delay(attempt: u32, random: u32) -> Duration {
    let full = FIRST.saturating_mul(2u32.saturating_pow(attempt)).min(LONGEST);
    full / 2 + (full / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// When to renew a token that is good from `issued` to `expires`: with a quarter of its life left,
/// time for several tries.
pub fn renew_at(issued: u64, expires: u64) -> u64 {
    expires - expires.saturating_sub(issued) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbrp_daemon_07_waits_double_within_bounds_and_spread() {
        let seconds = |attempt, random| delay(attempt, random).as_secs_f64();
        assert_eq!((seconds(0, 0), seconds(0, u32::MAX)), (0.25, 0.5));
        assert_eq!((seconds(3, 0), seconds(3, u32::MAX)), (2.0, 4.0));
        for attempt in [6, 7, 31, 32, u32::MAX] {
            assert_eq!((seconds(attempt, 0), seconds(attempt, u32::MAX)), (15.0, 30.0));
        }
        assert!(delay(5, 1 << 30) < delay(5, 1 << 31));
    }

    #[test]
    fn sbrp_daemon_07_tokens_are_renewed_before_they_expire() {
        assert_eq!(renew_at(1_000, 4_600), 3_700);
        assert_eq!(renew_at(5, 5), 5);
        assert_eq!(renew_at(9, 5), 5, "a token from the future is renewed when it ends");
    }
}
