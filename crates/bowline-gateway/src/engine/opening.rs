//! The first turn of a session that nobody has heard of.
//!
//! Who waits for a whole answer hears nothing before it is there. So for a moment the turn need not
//! be on disk: if the model answers within it, as a cache or a small one next door does, what was
//! asked and what came of it are one write instead of two. After that moment, or before anything
//! else is written for it, it is accepted like any other turn, so that a crash does not lose it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_sbp::id::TurnId;
use bowline_store::{InstanceId, NewSession, NewTurn, TurnSession};

use super::request::TurnRequest;

/// What there is to be written, once.
#[derive(Debug)]
pub(super) struct Opening(Mutex<Stage>);

#[derive(Debug)]
enum Stage {
    Unwritten(Box<First>),
    /// On its way to the store, by itself or together with its end.
    Taken,
    /// The store has accepted it: others may know of it.
    Known,
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

    /// The turn goes on: what is to be accepted now, unless it was taken before.
    pub(super) fn take_turn(&self) -> Option<NewTurn> {
        self.take().map(First::accepting)
    }

    /// The turn is over: the session that is to be made together with its end, unless it was taken
    /// before.
    pub(super) fn take_session(&self) -> Option<NewSession> {
        self.take().map(|first| first.session)
    }

    pub(super) fn accepted(&self) {
        *self.lock() = Stage::Known;
    }

    /// Whether the store is known to have accepted the turn.
    pub(super) fn is_known(&self) -> bool {
        matches!(*self.lock(), Stage::Known)
    }

    fn take(&self) -> Option<First> {
        let mut stage = self.lock();
        if !matches!(*stage, Stage::Unwritten(_)) {
            return None;
        }
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Unwritten(first) => Some(*first),
            Stage::Taken | Stage::Known => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
