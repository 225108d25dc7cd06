//! The clock that callers pass in: a moment of monotonic time.
//!
//! [`Instant`] is `std::time::Instant` wherever that can be made. A browser has no such clock
//! (`Instant::now` panics on `wasm32-unknown-unknown`), so there it is a time since a start that the
//! caller chooses, such as `performance.now()`.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub use std::time::Instant;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use since_start::Instant;

#[cfg(any(test, all(target_family = "wasm", target_os = "unknown")))]
#[cfg_attr(test, allow(unreachable_pub, reason = "public in a browser only"))]
mod since_start {
    use std::ops::{Add, Sub};
    use std::time::Duration;

    /// A moment, as the time since a start that the caller chooses and never changes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Instant(Duration);

    impl Instant {
        /// The moment this long after the start.
        pub fn since_start(elapsed: Duration) -> Self {
            Self(elapsed)
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;

        fn add(self, later: Duration) -> Self {
            Self(self.0.saturating_add(later))
        }
    }

    impl Sub for Instant {
        type Output = Duration;

        /// Zero if the other moment is later, as with `std::time::Instant`.
        fn sub(self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::since_start::Instant;

    #[test]
    fn a_moment_since_a_start_is_compared_and_moved_like_one_of_the_system() {
        let at = |seconds| Instant::since_start(Duration::from_secs(seconds));
        assert_eq!(at(2) + Duration::from_secs(3), at(5));
        assert_eq!(at(5) - at(2), Duration::from_secs(3));
        assert_eq!(at(2) - at(5), Duration::ZERO);
        assert!(at(2) < at(5));
    }
}
