//! How long a peer is left alone that failed or lied. Pure: time and randomness are arguments.
//!
//! A failure is what any server has now and then: the wait is short, doubles, and one good answer ends
//! it. A lie is what no honest server does: the wait is long, doubles with each one, and a good answer
//! in between does not shorten it. It is forgotten after a day without another.
//!
//! Invariant: the number of peers that are remembered is bounded (G11).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bowline_net::backoff::Backoff;

use crate::fault::Blame;

const FAILURES: Backoff = Backoff { start: Duration::from_secs(1), cap: Duration::from_secs(60) };
const LIES: Backoff =
    Backoff { start: Duration::from_secs(120), cap: Duration::from_secs(4 * 3600) };
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);
/// The most peers that are remembered.
const MOST: usize = 10_000;

/// What is remembered of all peers, by name.
#[derive(Debug)]
pub struct Penalties {
    of: HashMap<String, Standing>,
    most: usize,
}

#[derive(Debug, Clone, Copy)]
struct Standing {
    failures: u32,
    lies: u32,
    last: Instant,
    until: Instant,
}

impl Default for Penalties {
    fn default() -> Self {
        Self { of: HashMap::new(), most: MOST }
    }
}

impl Penalties {
    /// How much longer the peer is left alone; none if it may be asked.
    pub fn wait(&self, peer: &str, now: Instant) -> Option<Duration> {
        let wait = self.of.get(peer)?.until.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }

    /// Records what a peer did. `random` spreads the waits.
    pub fn blame(&mut self, peer: &str, blame: Blame, now: Instant, random: u32) {
        if blame == Blame::None {
            return;
        }
        if !self.of.contains_key(peer) {
            self.make_room(now);
        }
        let fresh = Standing { failures: 0, lies: 0, last: now, until: now };
        let standing = self.of.entry(peer.to_owned()).or_insert(fresh);
        if now.saturating_duration_since(standing.last) > FORGOTTEN_AFTER {
            *standing = fresh;
        }
        standing.last = now;
        let wait = match blame {
            Blame::Lie => {
                standing.lies = standing.lies.saturating_add(1);
                LIES.delay(standing.lies - 1, random)
            }
            _ => {
                standing.failures = standing.failures.saturating_add(1);
                FAILURES.delay(standing.failures - 1, random)
            }
        };
        standing.until = standing.until.max(now + wait);
    }

    /// The peer gave a good answer.
    pub fn answered(&mut self, peer: &str) {
        if let Some(standing) = self.of.get_mut(peer) {
            standing.failures = 0;
            if standing.lies == 0 {
                self.of.remove(peer);
            }
        }
    }

    /// Forgets what a peer did: the operator says that it is well.
    pub fn forgive(&mut self, peer: &str) {
        self.of.remove(peer);
    }

    fn make_room(&mut self, now: Instant) {
        if self.of.len() < self.most {
            return;
        }
        let is_remembered = |standing: &Standing| {
            let since = now.saturating_duration_since(standing.last);
            standing.until > now || (standing.lies > 0 && since <= FORGOTTEN_AFTER)
        };
        self.of.retain(|_, standing| is_remembered(standing));
        if self.of.len() >= self.most {
            // Whoever would be free first.
            let first = self.of.iter().min_by_key(|(_, standing)| standing.until);
            let first = first.map(|(peer, _)| peer.clone());
            first.map(|peer| self.of.remove(&peer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: fn() -> Instant = Instant::now;

    fn seconds(penalties: &Penalties, peer: &str, now: Instant) -> u64 {
        penalties.wait(peer, now).map_or(0, |wait| wait.as_secs())
    }

    #[test]
    fn sbp_l6_06_a_peer_that_lies_is_left_alone_for_long_and_longer() {
        let (mut penalties, mut now) = (Penalties::default(), NOW());
        for expected in [120, 240, 480, 960, 1920, 3840, 7680, 14_400, 14_400] {
            penalties.blame("a", Blame::Lie, now, u32::MAX);
            assert_eq!(seconds(&penalties, "a", now), expected);
            assert_eq!(penalties.wait("b", now), None, "nobody else pays for it");
            now += Duration::from_secs(expected + 1);
            assert_eq!(penalties.wait("a", now), None);
            penalties.answered("a");
        }
        now += FORGOTTEN_AFTER;
        penalties.blame("a", Blame::Lie, now, u32::MAX);
        assert_eq!(seconds(&penalties, "a", now), 120, "a day later it begins anew");
    }

    #[test]
    fn sbp_l6_06_a_failure_is_short_and_a_good_answer_ends_it() {
        let (mut penalties, now) = (Penalties::default(), NOW());
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            penalties.blame("a", Blame::Failure, now, u32::MAX);
            assert_eq!(seconds(&penalties, "a", now), expected);
        }
        penalties.answered("a");
        assert_eq!(penalties.wait("a", now), None);
        penalties.blame("a", Blame::Failure, now, u32::MAX);
        assert_eq!(seconds(&penalties, "a", now), 1);
        penalties.blame("a", Blame::None, now, u32::MAX);
        assert_eq!(seconds(&penalties, "a", now), 1);
    }

    #[test]
    fn sbp_l6_06_a_failure_after_a_lie_shortens_nothing() {
        let (mut penalties, now) = (Penalties::default(), NOW());
        penalties.blame("a", Blame::Lie, now, 0);
        penalties.blame("a", Blame::Failure, now, 0);
        assert_eq!(seconds(&penalties, "a", now), 60);
        penalties.answered("a");
        assert_eq!(seconds(&penalties, "a", now), 60);
        penalties.forgive("a");
        assert_eq!(penalties.wait("a", now), None);
    }

    #[test]
    fn g11_the_number_of_peers_that_are_remembered_is_bounded() {
        let mut penalties = Penalties { most: 10, ..Penalties::default() };
        let now = NOW();
        penalties.blame("liar", Blame::Lie, now, u32::MAX);
        for n in 0..100 {
            penalties.blame(&format!("peer-{n}"), Blame::Failure, now, u32::MAX);
            assert!(penalties.of.len() <= 10);
        }
        assert!(penalties.wait("liar", now).is_some(), "the worst is remembered longest");
    }
}
