//! A replica: a process that may own the session, with its actor and driver state.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bowline_sbp::id::TurnId;
use bowline_sbp::session::liveness::Liveness;
use bowline_sbp::session::{
    Actor, CommandId, Commit, CommitError, Effect, Fact, HandOff, LiveState, ReplicaId,
};
use serde_json::Value;
use uuid::Uuid;

use super::liveness::Asked;
use super::model::Round;

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) id: ReplicaId,
    pub(super) state: State,
    pub(super) liveness: Liveness,
    /// Its requests to the store about leases.
    pub(super) asked: Vec<Asked>,
    pub(super) running: Option<Running>,
    /// Tasks may outlive the actor that started them.
    pub(super) tasks: Vec<Task>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// Does nothing until it is resumed; keeps its state.
    Paused,
    Down,
}

/// An entry of an actor's inbox.
#[derive(Debug)]
pub(super) enum Waiting {
    Request(usize),
    Fact(Fact),
}

/// An actor and its driver.
#[derive(Debug)]
pub(super) struct Running {
    /// Unique among all actors of a simulation.
    pub(super) serial: u64,
    pub(super) actor: Actor,
    pub(super) inbox: VecDeque<Waiting>,
    pub(super) flight: Option<Flight>,
    /// Effects to execute before the next input is taken.
    pub(super) effects: VecDeque<Effect>,
    /// Requests that wait for a reply, by command.
    pub(super) callers: BTreeMap<CommandId, usize>,
    /// The newest request of each client that was taken; older copies are ignored.
    pub(super) newest: BTreeMap<usize, usize>,
    /// The state published to watchers.
    pub(super) live: Option<LiveState>,
    /// Turns whose rounds it has cancelled.
    pub(super) cancelled: Vec<TurnId>,
    pub(super) stopping: bool,
}

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) commit: Arc<Commit>,
    /// The store's answer, once it has handled the commit.
    pub(super) answer: Option<Result<(), CommitError>>,
}

/// Background work started by an effect.
#[derive(Debug)]
pub(super) enum Task {
    Round(Round),
    Replan { turn: TurnId, attempt: u32 },
    Call { call: Uuid, input: Value },
    Pack { handoff: Box<HandOff>, last_seq: u64 },
}

impl Replica {
    pub(super) fn new(id: ReplicaId, liveness: Liveness) -> Self {
        let (asked, tasks) = (Vec::new(), Vec::new());
        Self { id, state: State::Up, liveness, asked, running: None, tasks }
    }

    /// Whether a request about leases waits for the store.
    pub(super) fn has_request(&self) -> bool {
        self.asked.iter().any(|asked| !asked.is_answered())
    }

    /// Whether an answer of the store is on its way.
    pub(super) fn has_answer(&self) -> bool {
        self.asked.iter().any(Asked::is_answered)
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

    /// Whether it can take inputs from its inbox.
    pub(super) fn can_take(&self) -> bool {
        let has_input = !self.inbox.is_empty() || self.actor.has_work();
        self.flight.is_none() && self.effects.is_empty() && has_input
    }

    /// Whether it has no commit in flight and no effects left.
    pub(super) fn is_at_rest(&self) -> bool {
        self.flight.is_none() && self.effects.is_empty() && !self.actor.has_work()
    }
}
