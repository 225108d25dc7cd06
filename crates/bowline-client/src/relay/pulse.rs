//! Is the relay still there? Silence is asked about, then taken for loss.
//!
//! Pure: times are passed in. Only what was heard counts; a message that was sent proves nothing.

use std::time::{Duration, Instant};

/// How an end keeps watch over its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// How long nothing is heard before a ping is sent; 15 s by default.
    pub ping_after: Duration,
    /// How long nothing is heard before the connection is given up; 45 s by default.
    pub silence: Duration,
}

impl Default for Watch {
    fn default() -> Self {
        Self { ping_after: Duration::from_secs(15), silence: Duration::from_secs(45) }
    }
}

#[derive(Debug)]
pub(super) struct Pulse {
    watch: Watch,
    heard: Instant,
    asked: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beat {
    Fine,
    Ask,
    Silent,
}

impl Pulse {
    pub(super) fn new(watch: Watch, now: Instant) -> Self {
        Self { watch, heard: now, asked: now }
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// When [`Pulse::check`] is due.
    pub(super) fn due(&self) -> Instant {
        self.ask_at().min(self.heard + self.watch.silence)
    }

    pub(super) fn check(&mut self, now: Instant) -> Beat {
        if now >= self.heard + self.watch.silence {
            Beat::Silent
        } else if now >= self.ask_at() {
            self.asked = now;
            Beat::Ask
        } else {
            Beat::Fine
        }
    }

    /// Asked once each while, as long as no answer comes.
    fn ask_at(&self) -> Instant {
        self.heard.max(self.asked) + self.watch.ping_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_asked_about_and_then_taken_for_loss() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pulse = Pulse::new(Watch::default(), start);
        assert_eq!((pulse.check(at(14)), pulse.due()), (Beat::Fine, at(15)));
        assert_eq!((pulse.check(at(15)), pulse.due()), (Beat::Ask, at(30)));
        assert_eq!(pulse.check(at(16)), Beat::Fine, "asked once");
        pulse.heard(at(16));
        assert_eq!((pulse.check(at(30)), pulse.due()), (Beat::Fine, at(31)));
        assert_eq!((pulse.check(at(31)), pulse.check(at(46))), (Beat::Ask, Beat::Ask));
        assert_eq!((pulse.due(), pulse.check(at(61))), (at(61), Beat::Silent));
    }
}
