//! How often strangers may announce and look up, and how often one host is asked for a key because of
//! them: otherwise a tracker could be made to flood somebody else.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use bowline_net::loopback::is_loopback;
use bowline_net::rate::{Beyond, Rate, Throttle, TooOften};

use crate::config::TrackerLimits;

/// The most addresses, or hosts, that have their own limit.
const MOST: usize = 10_000;
/// Keys are fetched from one host this often.
const KEYS_PER_HOST: Rate = Rate { burst: 3, every: Duration::from_secs(10) };

#[derive(Debug)]
pub(crate) struct Throttles {
    announcements: Option<Throttle<IpAddr>>,
    lookups: Option<Throttle<IpAddr>>,
    keys: Throttle<String>,
}

impl Throttles {
    pub(crate) fn new(limits: &TrackerLimits) -> Self {
        let per_minute = |count: u32| {
            let every = Duration::from_secs(60).checked_div(count)?;
            Some(Rate { burst: count, every })
        };
        let throttle = |rate| Throttle::new(rate, MOST, Beyond::Share);
        Self {
            announcements: per_minute(limits.announcements_per_minute).map(throttle),
            lookups: Rate::per_second(limits.lookups_per_second).map(throttle),
            keys: Throttle::new(KEYS_PER_HOST, MOST, Beyond::Share),
        }
    }

    /// `from` is a network, as limits count addresses.
    pub(crate) fn may_announce(&self, from: IpAddr) -> Result<(), TooOften> {
        take(self.announcements.as_ref(), from)
    }

    pub(crate) fn may_look_up(&self, from: IpAddr) -> Result<(), TooOften> {
        take(self.lookups.as_ref(), from)
    }

    pub(crate) fn may_fetch_key(&self, host: String) -> Result<(), TooOften> {
        self.keys.take(host, Instant::now())
    }
}

fn take(throttle: Option<&Throttle<IpAddr>>, from: IpAddr) -> Result<(), TooOften> {
    match throttle {
        Some(throttle) if !is_loopback(from) => throttle.take(from, Instant::now()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g11_an_address_announces_and_looks_up_so_often_and_this_machine_as_it_likes() {
        let limits = TrackerLimits {
            announcements_per_minute: 5,
            lookups_per_second: 7,
            ..TrackerLimits::default()
        };
        let throttles = Throttles::new(&limits);
        let taken = |from: [u8; 4], take: &dyn Fn(IpAddr) -> Result<(), TooOften>| {
            (0..100).take_while(|_| take(from.into()).is_ok()).count()
        };
        let announce = |from| throttles.may_announce(from);
        let look_up = |from| throttles.may_look_up(from);
        assert_eq!(taken([192, 0, 2, 1], &announce), 5);
        assert_eq!(taken([192, 0, 2, 2], &announce), 5, "each address has its own limit");
        assert!(taken([192, 0, 2, 1], &look_up) >= 7);
        assert_eq!(taken([127, 0, 0, 1], &announce), 100);
        let keys = (0..100).take_while(|_| throttles.may_fetch_key("a".into()).is_ok()).count();
        assert_eq!(keys, 3, "one host is not flooded for strangers");
        let none = TrackerLimits { announcements_per_minute: 0, lookups_per_second: 0, ..limits };
        let throttles = Throttles::new(&none);
        assert_eq!(taken([192, 0, 2, 1], &|from| throttles.may_announce(from)), 100);
    }
}
