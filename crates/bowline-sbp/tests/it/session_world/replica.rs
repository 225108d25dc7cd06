//! A process that may own the session: its actor, and what surrounds it in a driver.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bowline_sbp::id::TurnId;
use bowline_sbp::session::{
    Actor, CommandId, Commit, CommitError, Effect, Fact, HandOff, LiveState, ReplicaId,
};
use serde_json::Value;
use uuid::Uuid;

use super::model::Round;

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) id: ReplicaId,
    pub(super) state: State,
    pub(super) running: Option<Running>,
    /// They may outlive the actor that began them.
    pub(super) tasks: Vec<Task>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// It does nothing, and will go on where it stopped.
    Paused,
    Down,
}

/// Something that waits in an actor's inbox.
#[derive(Debug)]
pub(super) enum Waiting {
    Request(usize),
    Fact(Fact),
}

/// An actor and its driver.
#[derive(Debug)]
pub(super) struct Running {
    /// No two actors of a world have the same.
    pub(super) serial: u64,
    pub(super) actor: Actor,
    pub(super) inbox: VecDeque<Waiting>,
    pub(super) flight: Option<Flight>,
    /// What is to be done before anything else is taken.
    pub(super) effects: VecDeque<Effect>,
    /// Who waits for a reply.
    pub(super) callers: BTreeMap<CommandId, usize>,
    /// The newest request of each client that was taken: older copies are passed over.
    pub(super) newest: BTreeMap<usize, usize>,
    /// What watchers see.
    pub(super) live: Option<LiveState>,
    /// Turns whose rounds it told to stop.
    pub(super) cancelled: Vec<TurnId>,
    pub(super) stopping: bool,
}

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) commit: Arc<Commit>,
    /// There once the store has looked at it.
    pub(super) answer: Option<Result<(), CommitError>>,
}

/// Work that an effect began.
#[derive(Debug)]
pub(super) enum Task {
    Round(Round),
    Replan { turn: TurnId, attempt: u32 },
    Call { call: Uuid, input: Value },
    Pack { handoff: Box<HandOff>, last_seq: u64 },
}

impl Replica {
    pub(super) fn new(id: ReplicaId) -> Self {
        Self { id, state: State::Up, running: None, tasks: Vec::new() }
    }

    pub(super) fn is_up(&self) -> bool {
        self.state == State::Up
    }
}

impl Running {
    pub(super) fn new(serial: u64, actor: Actor) -> Self {
        Self {
            serial,
            actor,
            inbox: VecDeque::new(),
            flight: None,
            effects: VecDeque::new(),
            callers: BTreeMap::new(),
            newest: BTreeMap::new(),
            live: None,
            cancelled: Vec::new(),
            stopping: false,
        }
    }

    /// Whether it can take what waits.
    pub(super) fn can_take(&self) -> bool {
        let has_input = !self.inbox.is_empty() || self.actor.has_work();
        self.flight.is_none() && self.effects.is_empty() && has_input
    }

    /// Whether nothing is left to be done for anybody.
    pub(super) fn is_at_rest(&self) -> bool {
        self.flight.is_none() && self.effects.is_empty() && !self.actor.has_work()
    }
}
