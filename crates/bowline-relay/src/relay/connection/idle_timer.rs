//! Keepalive: a silent peer gets a ping, and if it stays silent the connection is closed
//! (SBRP-RELAY-14). Pure.
//!
//! WebSocket pings are used because every client library answers them automatically.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct IdleTimer {
    heard: Instant,
    pinged: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing is due before this time.
    At(Instant),
    /// A ping has to be sent now; the timer already counts it as sent.
    Ping,
    Dead,
}

impl IdleTimer {
    pub(super) fn new(now: Instant) -> Self {
        Self { heard: now, pinged: false }
    }

    /// Records that bytes arrived: any byte shows that the peer is alive.
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
