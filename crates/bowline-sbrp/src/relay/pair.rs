//! One client paired with one daemon: the relay's view of a single session.
//!
//! Separate from the table, so that pause, grace period and resume can be tested without sockets.
//! Pure: callers pass `now` and execute the actions in order.
//!
//! Invariants
//! - `session_resumed` only after `Signal(ready)` (SBRP-RELAY-10).
//! - The grace period is counted once per pause: a daemon that reconnects and disconnects again
//!   does not extend it.
//! - A closed pair emits nothing more.

use std::time::Duration;

use crate::control::ControlCode;
use crate::impossible::Impossible;
use crate::time::Instant;

/// One session, from the moment its client was paired with an online daemon.
#[derive(Debug, Clone)]
pub struct Pair {
    grace: Duration,
    state: PairState,
}

/// Where a pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairState {
    /// Frames are forwarded in both directions.
    Paired,
    /// The daemon is disconnected.
    Paused {
        /// When the session is given up.
        grace_ends: Instant,
    },
    /// The daemon reconnected and has not signalled yet whether it can resume the session.
    Pending {
        /// When the session is given up.
        grace_ends: Instant,
    },
    /// Over.
    Closed,
}

/// What happens to a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairInput {
    /// The daemon's connection is gone.
    DaemonLost,
    /// The daemon is connected again.
    DaemonReturned {
        /// Whether its token permits to resume sessions.
        resumable: bool,
    },
    /// `Signal(ready)`.
    DaemonReady,
    /// `Signal(close)`, with any reason.
    DaemonClosed,
    /// The client's connection is gone.
    ClientGone,
    /// The relay ends the session: it is too old, or its user's sessions were ended.
    Over,
    /// The deadline may have come.
    Tick,
}

/// What is to be done for a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairAction {
    /// Send this code to the client.
    TellClient(ControlCode),
    /// Send this code to the daemon.
    TellDaemon(ControlCode),
    /// Close the client's connection after this code.
    CloseClient(ControlCode),
}

impl Pair {
    /// A client with a daemon that is connected.
    pub fn new(grace: Duration) -> Self {
        Self { grace, state: PairState::Paired }
    }

    /// Where it is.
    pub fn state(&self) -> PairState {
        self.state
    }

    /// What follows from an input.
    pub fn handle(
        &mut self,
        input: PairInput,
        now: Instant,
    ) -> Result<Vec<PairAction>, Impossible> {
        use ControlCode::*;
        use PairAction::*;
        use PairInput::*;
        use PairState::*;
        let expired = || vec![TellClient(SessionExpired), CloseClient(SessionExpired)];

        let (next, actions) = match (self.state, input) {
            (Paired, DaemonLost) => {
                (Paused { grace_ends: now + self.grace }, vec![TellClient(SessionPaused)])
            }
            (Paired, DaemonClosed) => (Closed, expired()),
            (Paired, ClientGone) => (Closed, vec![TellDaemon(SessionEnded)]),
            (Paired, Tick) => (Paired, vec![]),

            (Paused { grace_ends }, DaemonReturned { resumable: true }) => {
                (Pending { grace_ends }, vec![TellClient(SessionPending)])
            }
            (Paused { .. }, DaemonReturned { resumable: false }) => (Closed, expired()),
            (Paused { grace_ends }, Tick) if now >= grace_ends => (Closed, expired()),
            // No daemon is connected that could be told (SBRP-RELAY-12).
            (Paused { .. }, ClientGone) => (Closed, vec![]),

            (Pending { .. }, DaemonReady) => (Paired, vec![TellClient(SessionResumed)]),
            (Pending { .. }, DaemonClosed) => (Closed, expired()),
            (Pending { grace_ends }, DaemonLost) => {
                (Paused { grace_ends }, vec![TellClient(SessionPaused)])
            }
            // The daemon is connected and must drop the state of a session that has expired.
            (Pending { grace_ends }, Tick) if now >= grace_ends => {
                (Closed, [expired(), vec![TellDaemon(SessionEnded)]].concat())
            }
            (Pending { .. }, ClientGone) => (Closed, vec![TellDaemon(SessionEnded)]),

            (Paused { .. } | Pending { .. }, Tick) => (self.state, vec![]),

            (Paired | Pending { .. }, Over) => {
                (Closed, [expired(), vec![TellDaemon(SessionEnded)]].concat())
            }
            (Paused { .. }, Over) => (Closed, expired()),

            (state, input) => return Err(Impossible { state: state.name(), event: input.name() }),
        };
        self.state = next;
        Ok(actions)
    }

    /// When the next `Tick` is due.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            PairState::Paused { grace_ends } | PairState::Pending { grace_ends } => {
                Some(grace_ends)
            }
            PairState::Paired | PairState::Closed => None,
        }
    }
}

impl PairState {
    fn name(self) -> &'static str {
        match self {
            Self::Paired => "paired",
            Self::Paused { .. } => "paused",
            Self::Pending { .. } => "pending",
            Self::Closed => "closed",
        }
    }
}

impl PairInput {
    fn name(self) -> &'static str {
        match self {
            Self::DaemonLost => "the daemon's loss",
            Self::DaemonReturned { .. } => "the daemon's return",
            Self::DaemonReady => "ready",
            Self::DaemonClosed => "close",
            Self::ClientGone => "the client's leave",
            Self::Over => "the relay's end",
            Self::Tick => "a timer",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ControlCode::*;
    use super::PairAction::*;
    use super::PairInput::*;
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);
    const EXPIRED: [PairAction; 2] = [TellClient(SessionExpired), CloseClient(SessionExpired)];
    const BACK: PairInput = DaemonReturned { resumable: true };

    /// A pair after these events, all at the same instant.
    fn after(start: Instant, inputs: &[PairInput]) -> Pair {
        let mut pair = Pair::new(GRACE);
        for input in inputs {
            pair.handle(*input, start).unwrap();
        }
        pair
    }

    #[test]
    fn sbrp_relay_09_10_a_daemon_that_comes_back_in_time_resumes_after_ready() {
        let start = Instant::now();
        let mut pair = Pair::new(GRACE);
        assert_eq!(pair.handle(DaemonLost, start), Ok(vec![TellClient(SessionPaused)]));
        assert_eq!(pair.deadline(), Some(start + GRACE));
        let later = start + GRACE / 2;
        assert_eq!(pair.handle(BACK, later), Ok(vec![TellClient(SessionPending)]));
        assert_eq!(pair.deadline(), Some(start + GRACE), "the grace goes on");
        assert_eq!(pair.handle(DaemonReady, later), Ok(vec![TellClient(SessionResumed)]));
        assert_eq!((pair.state(), pair.deadline()), (PairState::Paired, None));
    }

    #[test]
    fn sbrp_relay_10_grace_ends_paused_and_pending_sessions() {
        let start = Instant::now();
        let over = start + GRACE;
        let early = over - Duration::from_nanos(1);
        for (inputs, told) in [
            (&[DaemonLost][..], EXPIRED.to_vec()),
            (&[DaemonLost, BACK], [EXPIRED.as_slice(), &[TellDaemon(SessionEnded)]].concat()),
        ] {
            let mut pair = after(start, inputs);
            assert_eq!(pair.handle(Tick, early), Ok(vec![]), "an early timer is ignored");
            assert_eq!(pair.handle(Tick, over), Ok(told));
            assert_eq!(pair.state(), PairState::Closed);
        }
    }

    #[test]
    fn sbrp_relay_10_a_daemon_that_comes_and_goes_does_not_prolong_the_grace() {
        let start = Instant::now();
        let mut pair = after(start, &[DaemonLost, BACK]);
        let later = start + GRACE / 2;
        assert_eq!(pair.handle(DaemonLost, later), Ok(vec![TellClient(SessionPaused)]));
        assert_eq!(pair.deadline(), Some(start + GRACE));
    }

    #[test]
    fn sbrp_relay_03_close_expires_the_session_wherever_it_stands() {
        let start = Instant::now();
        for inputs in [&[][..], &[DaemonLost, BACK]] {
            let mut pair = after(start, inputs);
            let told = EXPIRED.to_vec();
            assert_eq!(pair.handle(DaemonClosed, start), Ok(told));
            assert_eq!(pair.state(), PairState::Closed);
        }
    }

    #[test]
    fn sbrp_relay_11_a_daemon_that_cannot_resume_ends_the_session_at_once() {
        let start = Instant::now();
        let mut pair = after(start, &[DaemonLost]);
        let told = pair.handle(DaemonReturned { resumable: false }, start);
        assert_eq!(told, Ok(EXPIRED.to_vec()));
    }

    #[test]
    fn sbrp_relay_12_a_client_that_leaves_is_told_to_a_daemon_that_is_there() {
        let start = Instant::now();
        for (inputs, told) in [
            (&[][..], vec![TellDaemon(SessionEnded)]),
            (&[DaemonLost], vec![]),
            (&[DaemonLost, BACK], vec![TellDaemon(SessionEnded)]),
        ] {
            assert_eq!(after(start, inputs).handle(ClientGone, start), Ok(told), "{inputs:?}");
        }
    }

    #[test]
    fn a_session_that_the_relay_ends_is_expired_for_its_client_and_over_for_its_daemon() {
        let start = Instant::now();
        let over = [EXPIRED.as_slice(), &[TellDaemon(SessionEnded)]].concat();
        for (inputs, told) in [
            (&[][..], over.clone()),
            (&[DaemonLost], EXPIRED.to_vec()),
            (&[DaemonLost, BACK], over.clone()),
        ] {
            let mut pair = after(start, inputs);
            assert_eq!(pair.handle(Over, start), Ok(told), "{inputs:?}");
            assert_eq!(pair.state(), PairState::Closed);
        }
    }

    #[test]
    fn no_pair_changes_in_a_way_the_protocol_does_not_name() {
        let start = Instant::now();
        let named = [
            ("paired", "paused"),
            ("paired", "closed"),
            ("paused", "pending"),
            ("paused", "closed"),
            ("pending", "paired"),
            ("pending", "closed"),
            // "Daemon gone → session_paused to each client", including clients of pending sessions.
            ("pending", "paused"),
        ];
        let inputs = [
            DaemonLost,
            BACK,
            DaemonReturned { resumable: false },
            DaemonReady,
            DaemonClosed,
            ClientGone,
            Over,
            Tick,
        ];
        for path in [&[][..], &[DaemonLost], &[DaemonLost, BACK], &[ClientGone]] {
            for input in inputs {
                let mut pair = after(start, path);
                let from = pair.state();
                let done = pair.handle(input, start + GRACE);
                let to = pair.state();
                let step = (from.name(), to.name());
                assert!(from == to || named.contains(&step), "{step:?} by {input:?}");
                if done.is_err() || from == PairState::Closed {
                    assert_eq!(from, to);
                    assert!(done.is_err(), "a closed pair emits nothing");
                }
            }
        }
    }
}
