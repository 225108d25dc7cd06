//! A machine and its commit protocol: one commit in flight, effects only after it.
//!
//! Apart from the task that drives it, so that lost leases, refused and doubtful commits are tested
//! by schedule. The driver feeds inputs, carries commits to the store and reports what came of
//! them, and carries effects out in order.
//!
//! | commit | what happens |
//! |---|---|
//! | stored | the effects, in order |
//! | fenced | no effects; the actor ends; clients find the new owner and ask again |
//! | not stored | the machine as it was; commands are refused, facts are kept and tried again |
//! | unknown | the same commit again, until it is stored or fenced |
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
    /// The lease is taken by the first commit.
    owned: bool,
    make: Option<NewSession>,
    /// What loading asked for, until it is written.
    first: Option<Step>,
    /// The row as it is on disk.
    stored: Head,
    /// Facts that could not be written yet.
    late: Vec<Fact>,
    flight: Option<Box<Flight>>,
}

/// A commit that was not answered yet.
#[derive(Debug)]
struct Flight {
    commit: Arc<Commit>,
    before: Machine,
    facts: Vec<Fact>,
    commands: Vec<CommandId>,
    effects: Vec<Effect>,
    /// An earlier copy may have been applied, or may still be.
    doubtful: bool,
}

/// What to do with the inputs that were taken.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// Store this, and report what came of it.
    Commit(Arc<Commit>),
    /// Nothing has to be written.
    Effects(Vec<Effect>),
}

/// What to do after a commit.
#[derive(Debug, PartialEq)]
pub enum After {
    /// It is stored: carry these out, in order.
    Effects(Vec<Effect>),
    /// It is not stored. Tell these; facts are kept, to be tried again after a pause.
    Refused(Vec<Effect>),
    /// Send the same commit again.
    Again(Arc<Commit>),
    /// This is not the owner any more, or never was: the actor ends without effects.
    Ended(CommitError),
}

impl Actor {
    /// Of a session that its first turn makes.
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

    /// Of a session that is there. What loading asks for goes with the first inputs; if anything
    /// has to be done at once, [`Actor::has_work`] says so.
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

    /// Whether a commit is in flight: inputs wait until it is answered.
    pub fn is_committing(&self) -> bool {
        self.flight.is_some()
    }

    /// Whether there is something to be written that no input has to ask for.
    pub fn has_work(&self) -> bool {
        self.first.is_some() || !self.late.is_empty()
    }

    /// Whether facts wait for a store that takes them.
    pub fn is_in_trouble(&self) -> bool {
        !self.late.is_empty()
    }

    /// The lease it holds, if it has written anything.
    pub fn lease(&self) -> Option<(ReplicaId, Fence)> {
        self.owned.then_some((self.owner, self.fence))
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.machine.deadline()
    }

    /// Takes inputs that came while nothing was in flight. `now` is asked once for each.
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

    /// What came of the commit in flight.
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
            Err(CommitError::NotStored(_)) if !flight.doubtful => {
                self.machine = flight.before;
                // What a deadline asks for, it asks for again.
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
            // That this copy was not stored says nothing of the one before it.
            Err(CommitError::Unknown(_) | CommitError::NotStored(_)) => {
                flight.doubtful = true;
                let again = After::Again(Arc::clone(&flight.commit));
                self.flight = Some(flight);
                again
            }
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
