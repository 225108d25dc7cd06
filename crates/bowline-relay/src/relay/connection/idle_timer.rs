//! Whether the peer is alive: silence is answered with a ping, and further silence ends the
//! connection (SBRP-RELAY-14). Pure.
//!
//! WebSocket pings, because every client's library answers them by itself.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct IdleTimer {
    heard: Instant,
    pinged: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing before this moment.
    At(Instant),
    /// A ping, now; it counts as sent.
    Ping,
    Dead,
}

impl IdleTimer {
    pub(super) fn new(now: Instant) -> Self {
        Self { heard: now, pinged: false }
    }

    /// Any byte is a sign of life.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.pinged = false;
    }

    pub(super) fn due(&mut self, now: Instant, every: Duration, patience: Duration) -> Due {
        let ping = self.heard + every;
        let dead = ping + patience;
        match self.pinged {
            false if now >= ping => {
                self.pinged = true;
                Due::Ping
            }
            false => Due::At(ping),
            true if now >= dead => Due::Dead,
            true => Due::At(dead),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn sbrp_relay_14_silence_is_pinged_once_and_then_ends() {
        let start = Instant::now();
        let mut idle = IdleTimer::new(start);
        let mut due = |at: u32| idle.due(start + S * at, S * 20, S * 10);
        assert_eq!(due(0), Due::At(start + S * 20));
        assert_eq!(due(20), Due::Ping);
        assert_eq!(due(20), Due::At(start + S * 30));
        assert_eq!(due(29), Due::At(start + S * 30));
        assert_eq!(due(30), Due::Dead);
    }

    #[test]
    fn any_byte_begins_anew() {
        let start = Instant::now();
        let mut idle = IdleTimer::new(start);
        assert_eq!(idle.due(start + S * 20, S * 20, S * 10), Due::Ping);
        idle.heard(start + S * 25);
        assert_eq!(idle.due(start + S * 31, S * 20, S * 10), Due::At(start + S * 45));
        assert_eq!(idle.due(start + S * 45, S * 20, S * 10), Due::Ping);
    }
}
