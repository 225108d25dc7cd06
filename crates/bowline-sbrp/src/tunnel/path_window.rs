//! How much may be on its way: the bandwidth-delay product of the path, measured.
//!
//! Separate, because both mistakes hurt. Too little, and a distant path idles for most of each round
//! trip. Too much, and what a slow path cannot take yet stands in a queue before it: everything else
//! waits behind it, and a relay closes whom it has to queue too much for (SBRP-RELAY-08).
//!
//! One record at a time is timed. When it is acknowledged, its round trip and what was acknowledged
//! meanwhile give the rate. The window is what the path holds at that rate and at the shortest round
//! trip, and as much again that may stand in a queue, within [`QUEUED`]. So a window that limits the rate
//! grows with each round trip, until the path does.
//!
//! The shortest round trip may become longer: another route, or somebody else's queue. When it was not
//! seen for [`AGED`], nothing is queued for a round trip, and the next one counts as the shortest. Without
//! that pause the queue would be taken for the path, and feed itself.
//!
//! Invariants
//! - The window is between [`LEAST_WINDOW`] and [`MOST_WINDOW`].
//! - Samples shrink it only if it limited them: who sends little learns nothing about the path.

use std::time::Duration;

use crate::time::Instant;

/// The window of a path that nothing is known about, and of the slowest.
pub(super) const LEAST_WINDOW: usize = 64 << 10;
/// The largest window.
pub(super) const MOST_WINDOW: usize = 4 << 20;
/// The most that may stand in a queue on the way: half of what a relay queues for a client.
const QUEUED: usize = 512 << 10;
/// What may stand in a queue is at least as much as goes through in this time: on a near path the ends'
/// own pauses are longer than a round trip.
const PAUSE: Duration = Duration::from_millis(5);
/// A round trip counts as at most this much: a longer one has waited in a queue.
const LONGEST: Duration = Duration::from_secs(1);
/// How long the shortest round trip counts when it is not seen again.
const AGED: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct PathWindow {
    window: usize,
    /// The shortest round trip, and when it was seen last, or nearly.
    round_trip: Option<(Duration, Instant)>,
    /// How many round trips are waited for without a queue: the first drains it, the second is measured.
    draining: u8,
    /// Bytes per second.
    rate: f64,
    /// What was acknowledged in this session, by weight.
    delivered: u64,
    timed: Option<TimedRecord>,
}

/// The record that is timed.
#[derive(Debug)]
struct TimedRecord {
    number: u64,
    sent_at: Instant,
    /// What had been acknowledged when it was sent.
    delivered: u64,
    /// The window was full since.
    limited: bool,
}

impl PathWindow {
    pub(super) fn new() -> Self {
        Self {
            window: LEAST_WINDOW,
            round_trip: None,
            draining: 0,
            rate: 0.0,
            delivered: 0,
            timed: None,
        }
    }

    pub(super) fn size(&self) -> usize {
        self.window
    }

    pub(super) fn shrink_to(&mut self, size: usize) {
        self.window = self.window.min(size.max(LEAST_WINDOW));
    }

    /// A record went into the session.
    pub(super) fn sent(&mut self, number: u64, now: Instant) {
        let delivered = self.delivered;
        self.timed.get_or_insert(TimedRecord { number, sent_at: now, delivered, limited: false });
    }

    /// A writer had to wait for the window.
    pub(super) fn was_full(&mut self) {
        if let Some(timed) = &mut self.timed {
            timed.limited = true;
        }
    }

    /// The peer has received all records before `acked`, and so much more weight than before. `spare` is how
    /// much the window may grow by.
    pub(super) fn acknowledged(&mut self, acked: u64, weight: usize, spare: usize, now: Instant) {
        self.delivered += weight as u64;
        let Some(timed) = self.timed.take_if(|timed| timed.number < acked) else { return };
        let took = (now - timed.sent_at).max(Duration::from_micros(1));
        let round_trip = self.shortest(took, timed.limited, now);
        let sample = (self.delivered - timed.delivered) as f64 / took.as_secs_f64();
        if sample > self.rate {
            self.rate = sample;
        } else if timed.limited {
            // A single slow round trip may be chance.
            self.rate -= (self.rate - sample) / 4.0;
        }
        let held = (self.rate * round_trip.min(LONGEST).as_secs_f64()) as usize;
        let queued = held.max((self.rate * PAUSE.as_secs_f64()) as usize).min(QUEUED);
        let wanted = if self.draining > 0 { held } else { held + queued };
        let most = self.window.saturating_add(spare).min(MOST_WINDOW);
        self.window = wanted.clamp(LEAST_WINDOW, most.max(LEAST_WINDOW));
    }
}

impl PathWindow {
    /// The shortest round trip, after another one that was `limited` by the window or not: then it may hold
    /// the pause before an acknowledgement, and says nothing when it is long.
    fn shortest(&mut self, took: Duration, limited: bool, now: Instant) -> Duration {
        let (shortest, seen) = self.round_trip.unwrap_or((took, now));
        let measured = match (took <= shortest + shortest / 4, limited) {
            (true, _) => {
                self.draining = 0;
                (took.min(shortest), now)
            }
            (false, false) => (shortest, seen),
            (false, true) if self.draining == 1 => {
                self.draining = 0;
                (took, now)
            }
            (false, true) => {
                self.draining = match self.draining {
                    0 if now - seen > AGED => 2,
                    waiting => waiting.saturating_sub(1),
                };
                (shortest, seen)
            }
        };
        self.round_trip = Some(measured);
        measured.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path with a rate and a round trip, and a writer that always has more: the window after each of
    /// `rounds`, with a quarter of it acknowledged at a time.
    fn fill(path: &mut PathWindow, rate: usize, round_trip: Duration, rounds: usize) -> usize {
        let mut now = Instant::now();
        let mut number = 0;
        for _ in 0..rounds {
            let window = path.size();
            path.sent(number, now);
            path.was_full();
            // What does not fit the path waits before it.
            let takes = round_trip.max(Duration::from_secs_f64(window as f64 / rate as f64));
            now += takes;
            number += 1;
            path.acknowledged(number, window, usize::MAX / 2, now);
        }
        path.size()
    }

    #[test]
    fn a_distant_fast_path_is_filled_within_a_second() {
        let mut path = PathWindow::new();
        let window = fill(&mut path, 20_000_000, Duration::from_millis(100), 10);
        let holds = 20_000_000 / 10;
        assert!((holds..=holds + QUEUED).contains(&window), "{window}");
    }

    #[test]
    fn a_slow_path_is_not_queued_up() {
        for rate in [5_000, 30_000, 150_000] {
            let mut path = PathWindow::new();
            // The first record is a small one, before there is a queue.
            let start = Instant::now();
            path.sent(0, start);
            path.acknowledged(1, 4096, 0, start + Duration::from_millis(60));
            let window = fill(&mut path, rate, Duration::from_millis(60), 50);
            // The least window may itself be taken for the path, and doubled, once.
            assert!(window <= 2 * LEAST_WINDOW, "{window} at {rate} bytes per second");
        }
    }

    #[test]
    fn a_near_path_has_room_for_the_ends_own_pauses() {
        let mut path = PathWindow::new();
        let window = fill(&mut path, 900_000_000, Duration::from_micros(200), 30);
        assert!((QUEUED..2 * QUEUED).contains(&window), "{window}");
    }

    #[test]
    fn a_path_that_became_longer_is_measured_anew_and_a_queue_is_not_taken_for_it() {
        let mut path = PathWindow::new();
        fill(&mut path, 10_000_000, Duration::from_millis(40), 20);
        let near = path.size();
        // Six times as far from now on: with the old round trip the window would hold a third of it.
        let far = fill(&mut path, 10_000_000, Duration::from_millis(240), 300);
        assert!(far > 2_400_000 && far <= 2_400_000 + 2 * QUEUED, "{near} then {far}");
        // For minutes on end, the queue that the window itself makes does not let it grow.
        let later = fill(&mut path, 10_000_000, Duration::from_millis(240), 2000);
        assert!(later <= 2_400_000 + 2 * QUEUED, "{later}");
        for rate in [30_000, 150_000, 2_000_000] {
            let mut path = PathWindow::new();
            let start = Instant::now();
            path.sent(0, start);
            path.acknowledged(1, 4096, 0, start + Duration::from_millis(60));
            let window = fill(&mut path, rate, Duration::from_millis(60), 5000);
            let most = (2 * LEAST_WINDOW).max(rate * 60 / 1000 * 3);
            assert!(window <= most, "{window} at {rate}");
        }
    }

    #[test]
    fn a_path_that_became_slow_shrinks_the_window_and_idleness_does_not() {
        let mut path = PathWindow::new();
        let wide = fill(&mut path, 40_000_000, Duration::from_millis(100), 20);
        assert_eq!(wide, MOST_WINDOW);
        // A record now and then.
        let now = Instant::now();
        for number in 1000..1100 {
            path.sent(number, now);
            path.acknowledged(number + 1, 4096, 0, now + Duration::from_millis(600));
        }
        assert_eq!(path.size(), wide);
        let narrow = fill(&mut path, 50_000, Duration::from_millis(100), 40);
        assert!(narrow < 2 * LEAST_WINDOW, "{narrow}");
    }

    #[test]
    fn the_window_grows_only_by_what_is_left() {
        let mut path = PathWindow::new();
        let now = Instant::now();
        path.sent(0, now);
        path.acknowledged(1, 10 << 20, 1000, now + Duration::from_millis(10));
        assert_eq!(path.size(), LEAST_WINDOW + 1000);
    }
}
