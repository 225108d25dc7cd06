//! Turns of one session run one at a time, in arrival order; a bounded number wait (SBP-L2-18).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_sbp::id::SessionId;
use tokio::sync::oneshot;

/// One lane per session that has something to do.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: Mutex<HashMap<SessionId, VecDeque<oneshot::Sender<()>>>>,
}

/// Too many turns wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneFull;

/// A place in a session's lane, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    lanes: Arc<Lanes>,
    session: SessionId,
    /// `None`: it is this ticket's turn.
    called: Option<oneshot::Receiver<()>>,
}

impl Lanes {
    /// Takes the next place in the session's lane.
    pub(crate) fn enter(
        self: &Arc<Self>,
        session: SessionId,
        limit: usize,
    ) -> Result<Ticket, LaneFull> {
        let mut lanes = self.lock();
        let called = match lanes.get_mut(&session) {
            None => {
                lanes.insert(session, VecDeque::new());
                None
            }
            Some(waiting) => {
                // Those who gave up while waiting hold no place.
                waiting.retain(|caller| !caller.is_closed());
                if waiting.len() >= limit {
                    return Err(LaneFull);
                }
                let (caller, called) = oneshot::channel();
                waiting.push_back(caller);
                Some(called)
            }
        };
        Ok(Ticket { lanes: Arc::clone(self), session, called })
    }

    /// Sessions with a lane.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, VecDeque<oneshot::Sender<()>>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane is free: calls the next one who still waits.
    fn leave(&self, session: SessionId) {
        let mut lanes = self.lock();
        let Some(waiting) = lanes.get_mut(&session) else { return };
        while let Some(caller) = waiting.pop_front() {
            if caller.send(()).is_ok() {
                return;
            }
        }
        lanes.remove(&session);
    }
}

impl Ticket {
    /// Whether it may run at once.
    pub(crate) fn is_first(&self) -> bool {
        self.called.is_none()
    }

    /// Waits until it may run.
    pub(crate) async fn called(&mut self) {
        if let Some(called) = &mut self.called {
            // The lane always calls or outlives its tickets; an error cannot come first.
            let _ = called.await;
            self.called = None;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let holds_the_lane = match &mut self.called {
            None => true,
            Some(called) => {
                called.close();
                // Called just now, and nobody will run: pass it on.
                called.try_recv().is_ok()
            }
        };
        if holds_the_lane {
            self.lanes.leave(self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn session(n: u128) -> SessionId {
        SessionId(Uuid::from_u128(n))
    }

    #[tokio::test]
    async fn sbp_l2_18_arrival_order_holds_and_a_full_lane_refuses() {
        let lanes = Arc::new(Lanes::default());
        let first = lanes.enter(session(1), 2).unwrap();
        let mut second = lanes.enter(session(1), 2).unwrap();
        let mut third = lanes.enter(session(1), 2).unwrap();
        assert_eq!(lanes.enter(session(1), 2).unwrap_err(), LaneFull);
        assert!(lanes.enter(session(2), 2).unwrap().is_first(), "other sessions are not held up");
        assert!(first.is_first() && !second.is_first());
        drop(first);
        second.called().await;
        drop(second);
        third.called().await;
        drop(third);
        assert!(lanes.lock().is_empty());
    }

    #[tokio::test]
    async fn who_gives_up_waiting_frees_its_place() {
        let lanes = Arc::new(Lanes::default());
        let first = lanes.enter(session(1), 1).unwrap();
        drop(lanes.enter(session(1), 1).unwrap());
        let mut third = lanes.enter(session(1), 1).unwrap();
        drop(first);
        third.called().await;
    }

    proptest! {
        #[test]
        fn any_order_of_coming_and_going_never_blocks_or_doubles(steps in proptest::collection::vec(0..6usize, 1..80)) {
            let lanes = Arc::new(Lanes::default());
            let mut tickets: Vec<Ticket> = Vec::new();
            for step in steps {
                if step < 3 || tickets.is_empty() {
                    tickets.extend(lanes.enter(session(1), 100).ok());
                } else {
                    tickets.remove(step % tickets.len());
                }
                for ticket in &mut tickets {
                    if ticket.called.as_mut().is_some_and(|called| called.try_recv().is_ok()) {
                        ticket.called = None;
                    }
                }
                let running = tickets.iter().filter(|ticket| ticket.is_first()).count();
                prop_assert_eq!(running, usize::from(!tickets.is_empty()));
                prop_assert!(tickets.first().is_none_or(Ticket::is_first), "oldest first");
            }
            drop(tickets);
            prop_assert!(lanes.lock().is_empty());
        }
    }
}
