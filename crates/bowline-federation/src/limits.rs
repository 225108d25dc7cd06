//! How large, how long and how slow an answer may be. Pure.
//!
//! A deadline for the whole answer alone would let a peer hold a connection with a byte now and then,
//! and a deadline for silence alone would let it do so for ever. So there are three: silence, the
//! average rate, and the whole.

use std::time::{Duration, Instant};

/// The limits of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// The largest body, in bytes.
    pub body: usize,
    /// From the request to the head of the answer, connecting included.
    pub head: Duration,
    /// The longest silence in the middle of the body.
    pub idle: Duration,
    /// From the head to the end of the body.
    pub total: Duration,
    /// The average rate that the body must have, in bytes a second, after [`ReadLimits::GRACE`].
    pub least_rate: u32,
}

/// Which deadline was missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lateness {
    #[error("it did not answer in time")]
    Head,
    #[error("it fell silent in the middle of its answer")]
    Idle,
    #[error("its answer came too slowly")]
    Rate,
    #[error("its answer took too long")]
    Total,
}

impl ReadLimits {
    /// How long a body may take before its rate counts.
    pub const GRACE: Duration = Duration::from_secs(5);

    /// For manifests, registries and reservations: small and at once.
    pub const fn small(body: usize) -> Self {
        Self {
            body,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(5),
            total: Duration::from_secs(15),
            least_rate: 1 << 10,
        }
    }

    /// For bundles.
    pub const fn bundle(body: usize) -> Self {
        Self {
            body,
            head: Duration::from_secs(30),
            idle: Duration::from_secs(10),
            total: Duration::from_secs(600),
            least_rate: 16 << 10,
        }
    }

    /// When the next bytes have to be there, of a body of which `received` bytes came until `last`.
    pub fn deadline(&self, began: Instant, last: Instant, received: usize) -> (Instant, Lateness) {
        let earned = match self.least_rate {
            0 => Duration::from_secs(u32::MAX.into()),
            rate => Duration::from_secs_f64(received as f64 / f64::from(rate)),
        };
        let all = [
            (last + self.idle, Lateness::Idle),
            (began + Self::GRACE + earned, Lateness::Rate),
            (began + self.total, Lateness::Total),
        ];
        all.into_iter().min_by_key(|(at, _)| *at).expect("there are three")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbp_l6_06_a_body_may_neither_fall_silent_nor_trickle_nor_last() {
        let limits = ReadLimits {
            body: 0,
            head: Duration::ZERO,
            idle: Duration::from_secs(3),
            total: Duration::from_secs(60),
            least_rate: 100,
        };
        let began = Instant::now();
        let after = |seconds: u64| began + Duration::from_secs(seconds);
        for (last, received, expected) in [
            (0, 0, (3, Lateness::Idle)),
            (4, 10, (5, Lateness::Rate)),
            (4, 1_000, (7, Lateness::Idle)),
            (50, 4_700, (52, Lateness::Rate)),
            (59, 1 << 20, (60, Lateness::Total)),
        ] {
            let (at, why) = limits.deadline(began, after(last), received);
            assert_eq!(((at - began).as_secs(), why), expected, "{received} until {last}");
        }
        let free = ReadLimits { least_rate: 0, ..limits };
        assert_eq!(free.deadline(began, after(58), 0), (after(60), Lateness::Total));
    }
}
