//! The keepalive: after some silence a ping is sent, after more the connection counts as lost.
//!
//! Pure: times are passed in. What was received counts, and what the relay took after it had to wait; that
//! a message went into an empty buffer proves nothing.

use std::time::{Duration, Instant};

/// When silence triggers a ping, and when it ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LivenessConfig {
    /// How long nothing is received before a ping is sent; 15 s by default.
    pub ping_after: Duration,
    /// How long nothing is received before the connection is closed; 45 s by default.
    pub silence: Duration,
}

impl LivenessConfig {
    /// A ping after this long, and the end after that long.
    pub const fn new(ping_after: Duration, silence: Duration) -> Self {
        Self { ping_after, silence }
    }
}

impl Default for LivenessConfig {
    fn default() -> Self {
        Self::new(Duration::from_secs(15), Duration::from_secs(45))
    }
}

#[derive(Debug)]
pub(super) struct Liveness {
    config: LivenessConfig,
    heard: Instant,
    asked: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LivenessCheck {
    Fine,
    Ask,
    Silent,
}

impl Liveness {
    pub(super) fn new(config: LivenessConfig, now: Instant) -> Self {
        Self { config, heard: now, asked: now }
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// When [`Liveness::check`] is due.
    pub(super) fn due(&self) -> Instant {
        self.ask_at().min(self.heard + self.config.silence)
    }

    pub(super) fn check(&mut self, now: Instant) -> LivenessCheck {
        if now >= self.heard + self.config.silence {
            LivenessCheck::Silent
        } else if now >= self.ask_at() {
            self.asked = now;
            LivenessCheck::Ask
        } else {
            LivenessCheck::Fine
        }
    }

    /// Repeats the ping after each interval without an answer.
    fn ask_at(&self) -> Instant {
        self.heard.max(self.asked) + self.config.ping_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_asked_about_and_then_taken_for_loss() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut liveness = Liveness::new(LivenessConfig::default(), start);
        assert_eq!((liveness.check(at(14)), liveness.due()), (LivenessCheck::Fine, at(15)));
        assert_eq!((liveness.check(at(15)), liveness.due()), (LivenessCheck::Ask, at(30)));
        assert_eq!(liveness.check(at(16)), LivenessCheck::Fine, "asked once");
        liveness.heard(at(16));
        assert_eq!((liveness.check(at(30)), liveness.due()), (LivenessCheck::Fine, at(31)));
        assert_eq!(
            (liveness.check(at(31)), liveness.check(at(46))),
            (LivenessCheck::Ask, LivenessCheck::Ask)
        );
        assert_eq!((liveness.due(), liveness.check(at(61))), (at(61), LivenessCheck::Silent));
    }
}
