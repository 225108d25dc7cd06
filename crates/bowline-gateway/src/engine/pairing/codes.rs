//! The codes that wait for a device, and how often they may be tried.
//!
//! In memory: a restart forgets them. Time is passed in.
//!
//! Invariants
//! - A code is taken out once (G7), and not after it has expired.
//! - At most [`MOST`] wait (G11).

use std::time::{Duration, Instant};

use bowline_net::rate::{Bucket, Rate};
use bowline_sbp::access::Scopes;
use bowline_sbp::id::UserId;
use jiff::Timestamp;

/// A code. Nobody guesses that many bytes while it waits.
pub(crate) type Code = [u8; 16];

/// How many codes may wait at a time.
pub(super) const MOST: usize = 16;
/// How long a code waits.
const LIFETIME: Duration = Duration::from_secs(5 * 60);
/// How often codes may be tried, by all devices together.
const ATTEMPTS: Rate = Rate { burst: 10, every: Duration::from_secs(10) };

/// A code that waits, and what it pairs a device with.
#[derive(Clone)]
pub(super) struct WaitingOffer {
    pub(super) code: Code,
    pub(super) user: UserId,
    pub(super) scopes: Scopes,
    pub(super) expires_at: Timestamp,
}

pub(super) struct Codes {
    waiting: Vec<WaitingOffer>,
    attempts: Bucket,
}

/// As many codes wait as may.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Codes {
    pub(super) fn new(now: Instant) -> Self {
        Self { waiting: Vec::new(), attempts: Bucket::new(Some(ATTEMPTS), now) }
    }

    /// Has a new code wait. Returns until when.
    pub(super) fn add(
        &mut self,
        code: Code,
        user: UserId,
        scopes: Scopes,
        now: Timestamp,
    ) -> Result<Timestamp, Full> {
        if self.waiting(now).len() >= MOST {
            return Err(Full);
        }
        let expires_at = now + LIFETIME;
        self.waiting.push(WaitingOffer { code, user, scopes, expires_at });
        Ok(expires_at)
    }

    /// Those that wait.
    pub(super) fn waiting(&mut self, now: Timestamp) -> Vec<(Code, Timestamp)> {
        self.waiting.retain(|waiting| now < waiting.expires_at);
        self.waiting.iter().map(|waiting| (waiting.code, waiting.expires_at)).collect()
    }

    /// Whether a code may be tried now.
    pub(super) fn may_try(&mut self, now: Instant) -> bool {
        self.attempts.take(now)
    }

    /// Takes a code out, if it still waits.
    pub(super) fn take(&mut self, code: &Code, now: Timestamp) -> Option<WaitingOffer> {
        let at = self.waiting.iter().position(|waiting| waiting.code == *code)?;
        Some(self.waiting.swap_remove(at)).filter(|taken| now < taken.expires_at)
    }

    /// Has a code that was taken out wait again, until the same time: it paired nobody.
    pub(super) fn put_back(&mut self, taken: WaitingOffer) {
        if self.waiting.len() < MOST {
            self.waiting.push(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use bowline_sbp::access::OWNER;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn add(codes: &mut Codes, n: u8, now: Timestamp) -> Result<Timestamp, Full> {
        codes.add([n; 16], OWNER, Scopes::all(), now)
    }

    #[test]
    fn g7_a_code_is_taken_once_and_not_after_five_minutes() {
        let mut codes = Codes::new(Instant::now());
        assert_eq!(add(&mut codes, 1, at(0)), Ok(at(300)));
        add(&mut codes, 2, at(10)).unwrap();
        assert!(codes.take(&[3; 16], at(1)).is_none());
        assert_eq!(codes.take(&[1; 16], at(299)).unwrap().code, [1; 16]);
        assert!(codes.take(&[1; 16], at(299)).is_none(), "once");
        assert_eq!(codes.waiting(at(309)), [([2; 16], at(310))]);
        assert!(codes.take(&[2; 16], at(310)).is_none(), "expired");
        assert!(codes.waiting(at(310)).is_empty());
    }

    #[test]
    fn a_code_that_paired_nobody_waits_as_long_as_before() {
        let mut codes = Codes::new(Instant::now());
        add(&mut codes, 1, at(0)).unwrap();
        let taken = codes.take(&[1; 16], at(200)).unwrap();
        codes.put_back(taken);
        assert_eq!(codes.waiting(at(200)), [([1; 16], at(300))]);
        assert!(codes.take(&[1; 16], at(300)).is_none());
    }

    #[test]
    fn g11_only_so_many_codes_wait_and_expired_ones_make_room() {
        let mut codes = Codes::new(Instant::now());
        for n in 0..MOST as u8 {
            add(&mut codes, n, at(0)).unwrap();
        }
        assert_eq!(add(&mut codes, 99, at(299)), Err(Full));
        assert!(add(&mut codes, 99, at(300)).is_ok());
    }

    #[test]
    fn g11_codes_are_tried_ten_times_at_once_and_then_every_ten_seconds() {
        let start = Instant::now();
        let mut codes = Codes::new(start);
        assert_eq!((0..100).filter(|_| codes.may_try(start)).count(), 10);
        assert!(!codes.may_try(start + Duration::from_secs(9)));
        assert!(codes.may_try(start + Duration::from_secs(10)));
        assert!(!codes.may_try(start + Duration::from_secs(10)));
    }
}
