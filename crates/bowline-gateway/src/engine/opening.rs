//! The first turn of a session that nobody has heard of.
//!
//! Who waits for a whole answer hears nothing before it is there. So for a moment the turn need not
//! be on disk: if the model answers within it, as a cache or a small one next door does, what was
//! asked and what came of it are one write instead of two. After that moment, or before anything
//! else is written for it, it is accepted like any other turn, so that a crash does not lose it.

use std::sync::{Arc, Mutex, PoisonError};

use bowline_sbp::id::TurnId;
use bowline_store::{InstanceId, NewSession, NewTurn, TurnSession};

use super::request::TurnRequest;

/// What there is to be written, once.
#[derive(Debug)]
pub(super) struct Opening(Mutex<Stage>);

#[derive(Debug)]
enum Stage {
    Unwritten(Box<First>),
    /// The store has the turn, or was asked to take it.
    Accepted,
    /// The turn came to its end before that.
    Over,
}

/// A session and its first turn.
#[derive(Debug)]
pub(super) struct First {
    pub(super) session: NewSession,
    pub(super) turn: TurnId,
    pub(super) request: Arc<TurnRequest>,
    pub(super) owner: InstanceId,
}

impl First {
    /// As a turn to be accepted.
    fn accepting(self) -> NewTurn {
        NewTurn {
            id: self.turn,
            at: self.session.at,
            session: TurnSession::New(self.session),
            request: self.request.to_json(),
            key: None,
            owner: self.owner,
            agent_id: self.request.agent_id.clone(),
            started: true,
        }
    }
}

impl Opening {
    pub(super) fn new(first: First) -> Self {
        Self(Mutex::new(Stage::Unwritten(Box::new(first))))
    }

    /// The turn goes on: it is to be accepted now, unless it was before.
    pub(super) fn accept(&self) -> Option<NewTurn> {
        self.leave(Stage::Accepted).map(First::accepting)
    }

    /// The turn is over: its session is to be made together with its end, unless it is there.
    pub(super) fn end(&self) -> Option<NewSession> {
        self.leave(Stage::Over).map(|first| first.session)
    }

    /// Whether the store was asked to take the turn.
    pub(super) fn was_accepted(&self) -> bool {
        matches!(*self.0.lock().unwrap_or_else(PoisonError::into_inner), Stage::Accepted)
    }

    fn leave(&self, next: Stage) -> Option<First> {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*stage, Stage::Unwritten(_)) {
            return None;
        }
        match std::mem::replace(&mut *stage, next) {
            Stage::Unwritten(first) => Some(*first),
            Stage::Accepted | Stage::Over => None,
        }
    }
}
