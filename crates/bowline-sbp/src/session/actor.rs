//! A machine and its commit protocol: one commit in flight, effects only after it.
//!
//! Apart from the task that drives it, so that lost leases, failed commits and commits of unknown
//! outcome can be tested under a chosen schedule. The driver feeds inputs, sends commits to the
//! store, reports their results, and carries effects out in order.
//!
//! | commit result | what happens |
//! |---|---|
//! | stored | the effects are carried out, in order |
//! | fenced | no effects; the actor ends; clients find the new owner and retry |
//! | not stored | the machine is rolled back; commands are refused, facts are kept and retried |
//! | unknown | the same commit is sent again, until it is stored or fenced |
//! | fatal | the process exits |

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use uuid::Uuid;

use super::commit::{Commit, CommitError, Fence, Lease, Loaded, ReplicaId};
use super::effect::{Effect, Refusal, Reply};
use super::input::{CommandId, Fact, Input, Now};
use super::machine::{Machine, SessionLimits, Step};
use super::row::{Head, NewSession};

/// The owner of one session.
#[derive(Debug)]
pub struct Actor {
    machine: Machine,
    owner: ReplicaId,
    fence: Fence,
    version: u64,
    /// Whether this actor holds the lease: its first commit takes it.
    owned: bool,
    make: Option<NewSession>,
    /// The recovery step of [`Machine::load`], until it is committed.
    first: Option<Step>,
    /// The session row as last committed.
    stored: Head,
    /// Facts whose commit failed, to be retried.
    late: Vec<Fact>,
    flight: Option<Box<Flight>>,
}

/// The commit in flight, and what is needed to roll it back.
#[derive(Debug)]
struct Flight {
    commit: Arc<Commit>,
    before: Machine,
    facts: Vec<Fact>,
    commands: Vec<CommandId>,
    effects: Vec<Effect>,
    /// The commit was sent before with an unknown result: that copy may be applied, now or later.
    doubtful: bool,
}

/// What the driver does after [`Actor::take`].
#[derive(Debug, PartialEq)]
pub enum Next {
    /// Store this, and report the result to [`Actor::committed`].
    Commit(Arc<Commit>),
    /// Nothing has to be written.
    Effects(Vec<Effect>),
}

/// What the driver does after [`Actor::committed`].
#[derive(Debug, PartialEq)]
pub enum After {
    /// The commit is stored: carry these out, in order.
    Effects(Vec<Effect>),
    /// The commit is not stored. Send these replies; the actor keeps the facts, retry after a
    /// back-off.
    Refused(Vec<Effect>),
    /// Send the same commit again.
    Again(Arc<Commit>),
    /// This replica lost the lease, or never had it: the actor ends without effects.
    Ended(CommitError),
}

impl Actor {
    /// The actor of a new session, which its first turn creates.
    pub fn make(new: NewSession, owner: ReplicaId, limits: SessionLimits) -> Self {
        let machine = Machine::make(&new, limits);
        Self {
            stored: machine.head().clone(),
            machine,
            owner,
            fence: 0,
            version: 0,
            owned: false,
            make: Some(new),
            first: None,
            late: Vec::new(),
            flight: None,
        }
    }

    /// The actor of a stored session. The recovery step goes into the first commit;
    /// [`Actor::has_work`] says whether there is one.
    pub fn load(loaded: Loaded, owner: ReplicaId, limits: SessionLimits, now: Now) -> Self {
        let (fence, version, stored) = (loaded.fence, loaded.version, loaded.head.clone());
        let (machine, first) = Machine::load(loaded, limits, now);
        let first = Some(first).filter(|first| *first != Step::default());
        let (make, late, flight) = (None, Vec::new(), None);
        Self { machine, owner, fence, version, owned: false, make, first, stored, late, flight }
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Whether a commit is in flight: inputs wait for its result.
    pub fn is_committing(&self) -> bool {
        self.flight.is_some()
    }

    /// Whether there is something to commit without any new input.
    pub fn has_work(&self) -> bool {
        self.first.is_some() || !self.late.is_empty()
    }

    /// Whether facts wait to be retried, because a commit failed.
    pub fn is_in_trouble(&self) -> bool {
        !self.late.is_empty()
    }

    /// The lease; none before the first commit.
    pub fn lease(&self) -> Option<(ReplicaId, Fence)> {
        self.owned.then_some((self.owner, self.fence))
    }

    /// How many commits the session has, as far as this actor knows.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether it makes a new session, which is not stored yet.
    pub fn is_making(&self) -> bool {
        self.make.is_some()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.machine.deadline()
    }

    /// Handles inputs while no commit is in flight. `now` is called once per input.
    pub fn take(
        &mut self,
        inputs: Vec<Input>,
        commit_id: Uuid,
        mut now: impl FnMut() -> Now,
    ) -> Next {
        debug_assert!(self.flight.is_none(), "one commit in flight");
        let before = self.machine.clone();
        let mut step = self.first.clone().unwrap_or_default();
        let mut commands = Vec::new();
        let mut facts = std::mem::take(&mut self.late);
        for fact in &facts {
            step.extend(self.machine.handle(Input::Fact(fact.clone()), now()));
        }
        for input in inputs {
            match &input {
                Input::Command { id, .. } => commands.push(*id),
                Input::Fact(fact) => facts.push(fact.clone()),
            }
            step.extend(self.machine.handle(input, now()));
        }
        let Step { writes, effects } = step;
        if writes.is_empty() && self.stored == *self.machine.head() {
            self.first = None;
            return Next::Effects(effects);
        }
        let commit = Arc::new(Commit {
            id: commit_id,
            session: self.machine.id(),
            lease: Lease { owner: self.owner, fence: self.fence, take: !self.owned },
            version: self.version,
            make: self.make.clone(),
            head: self.machine.head().clone(),
            writes,
        });
        let next = Next::Commit(Arc::clone(&commit));
        let doubtful = false;
        let flight = Flight { commit, before, facts, commands, effects, doubtful };
        self.flight = Some(Box::new(flight));
        next
    }

    /// Handles the result of the commit in flight.
    pub fn committed(&mut self, result: Result<(), CommitError>) -> After {
        let Some(mut flight) = self.flight.take() else { return After::Effects(Vec::new()) };
        match result {
            Ok(()) => {
                self.version += 1;
                self.fence += u64::from(!self.owned);
                self.owned = true;
                self.make = None;
                self.first = None;
                self.stored = flight.commit.head.clone();
                After::Effects(flight.effects)
            }
            Err(CommitError::NotStored(_) | CommitError::Refused(_)) if !flight.doubtful => {
                self.machine = flight.before;
                // These two are not retried: both are reported again while they hold.
                self.late = flight.facts;
                self.late.retain(|fact| !matches!(fact, Fact::Deadline | Fact::StoreBusy));
                let mut told = Step::default();
                for to in flight.commands {
                    let reply = Reply::Refused(Refusal::NotStored);
                    told.effects.push(Effect::Reply { to, reply });
                }
                self.machine.release_waiters(&mut told);
                After::Refused(told.effects)
            }
            // An earlier copy of this commit may still be stored: rolling back would be wrong.
            Err(CommitError::Unknown(_) | CommitError::NotStored(_)) => {
                flight.doubtful = true;
                let again = After::Again(Arc::clone(&flight.commit));
                self.flight = Some(flight);
                again
            }
            // Also a copy of what is refused: whether an earlier one was stored, the next owner reads, and its fence
            // keeps out one that is still on its way.
            Err(error) => After::Ended(error),
        }
    }
}

impl Step {
    fn extend(&mut self, other: Step) {
        self.writes.extend(other.writes);
        self.effects.extend(other.effects);
    }
}
