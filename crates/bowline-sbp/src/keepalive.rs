//! Keepalive of a surface's socket (SBP-L2-17).
//!
//! Pure: time is an argument. Any frame from the surface answers a `PING`: a `PONG` frame, a
//! WebSocket pong or other traffic, so a client library without `PONG` is not disconnected.

use std::time::{Duration, Instant};

/// The interval between pings, and how long an answer may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveConfig {
    pub every: Duration,
    pub patience: Duration,
}

impl Default for KeepaliveConfig {
    fn default() -> Self {
        Self { every: Duration::from_secs(30), patience: Duration::from_secs(10) }
    }
}

/// What the driver has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing until [`Keepalive::deadline`].
    Wait,
    /// Send a `PING`.
    Ping,
    /// No answer in time: disconnect the surface.
    Dead,
}

/// The ping timer of one surface.
#[derive(Debug)]
pub struct Keepalive {
    config: KeepaliveConfig,
    state: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Quiet { ask_at: Instant },
    Asked { dead_at: Instant },
}

impl Keepalive {
    pub fn new(config: KeepaliveConfig, now: Instant) -> Self {
        Self { config, state: Phase::Quiet { ask_at: now + config.every } }
    }

    /// A frame came from the surface.
    pub fn heard(&mut self, now: Instant) {
        if let Phase::Asked { .. } = self.state {
            self.state = Phase::Quiet { ask_at: now + self.config.every };
        }
    }

    /// To be called at [`Keepalive::deadline`] or later.
    pub fn poll(&mut self, now: Instant) -> Verdict {
        match self.state {
            Phase::Quiet { ask_at } if now >= ask_at => {
                self.state = Phase::Asked { dead_at: now + self.config.patience };
                Verdict::Ping
            }
            Phase::Asked { dead_at } if now >= dead_at => Verdict::Dead,
            _ => Verdict::Wait,
        }
    }

    /// When to poll next.
    pub fn deadline(&self) -> Instant {
        match self.state {
            Phase::Quiet { ask_at } => ask_at,
            Phase::Asked { dead_at } => dead_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbp_l2_17_asks_every_30_s_and_gives_10_s_to_answer() {
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let mut pulse = Keepalive::new(KeepaliveConfig::default(), start);
        assert_eq!(pulse.poll(at(29)), Verdict::Wait);
        assert_eq!(pulse.poll(at(30)), Verdict::Ping);
        assert_eq!(pulse.poll(at(39)), Verdict::Wait);
        pulse.heard(at(39));
        assert_eq!(pulse.deadline(), at(69));
        assert_eq!(pulse.poll(at(69)), Verdict::Ping);
        assert_eq!(pulse.deadline(), at(79));
        assert_eq!(pulse.poll(at(79)), Verdict::Dead);
    }

    #[test]
    fn early_timer_is_ignored() {
        let start = Instant::now();
        let mut pulse = Keepalive::new(KeepaliveConfig::default(), start);
        assert_eq!(pulse.poll(start), Verdict::Wait);
        assert_eq!(pulse.deadline(), start + Duration::from_secs(30));
    }
}
