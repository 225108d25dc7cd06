//! The driver of an actor: gives it inputs, sends its commits, and ends it.

use bowline_sbp::id::{AgentId, TurnId};
use bowline_sbp::session::{
    Actor, After, Command, CommandId, CommitError, Fact, HandOff, Input, NewSession, Next, Reply,
    SessionLimits, TokenHash,
};
use jiff::Timestamp;

use super::World;
use super::planted::Planted;
use super::replica::{Flight, Running, State, Waiting};
use super::request::Travel;
use super::store::session_id;

/// Small, so that schedules reach them.
const LIMITS: SessionLimits =
    SessionLimits { waiting_turns: 3, surfaces: 2, calls: 3, attempts: 2, images: 1 << 20 };
/// The most inputs in one commit.
const BATCH: usize = 6;

impl World {
    /// Starts an actor for the session, if this replica may own it.
    pub(super) fn start_actor(&mut self, at: usize) {
        let me = self.replicas[at].id;
        let now = self.now();
        let actor = match self.store.load() {
            Some(loaded) => Actor::load(loaded, me, LIMITS, now),
            None => Actor::make(new_session(), me, LIMITS),
        };
        self.serial += 1;
        self.say(|| format!("replica {at} has actor {}", self.serial));
        self.tally.add("actors");
        self.replicas[at].running = Some(Running::new(self.serial, actor));
    }

    /// The actor takes some inputs from its inbox.
    pub(super) fn take(&mut self, at: usize) {
        let many = 1 + self.random.below(BATCH);
        let commit_id = self.random.uuid();
        let Some(mut running) = self.replicas[at].running.take() else { return };
        let mut inputs = Vec::new();
        while inputs.len() < many
            && let Some(waiting) = running.inbox.pop_front()
        {
            inputs.push(match waiting {
                Waiting::Fact(fact) => Input::Fact(fact),
                Waiting::Request(request) => {
                    self.commands += 1;
                    let id = CommandId(self.commands);
                    running.callers.insert(id, request);
                    let command = self.requests[request].command.clone();
                    let known = match &command {
                        Command::Submit(submit) => {
                            self.store.known(submit.key.as_ref(), submit.turn)
                        }
                        Command::HandOff(HandOff { key: Some(key), .. }) => {
                            self.store.known(Some(key), TurnId(commit_id))
                        }
                        _ => None,
                    };
                    Input::Command { id, command: Box::new(command), known }
                }
            });
        }
        let serial = running.serial;
        self.say(|| format!("actor {serial} takes {}", names(&inputs)));
        let now = self.now();
        match running.actor.take(inputs, commit_id, || now) {
            Next::Effects(effects) => running.effects.extend(effects),
            Next::Commit(commit) => {
                commit.writes.iter().for_each(|write| self.tally.add(write.name()));
                let writes: Vec<_> = commit.writes.iter().map(|write| write.name()).collect();
                self.say(|| format!("actor {serial} commits {}: {writes:?}", commit.version));
                if self.planted == Some(Planted::EffectsFirst) {
                    self.late.push((serial, commit));
                    if let After::Effects(effects) = running.actor.committed(Ok(())) {
                        running.effects.extend(effects);
                    }
                } else {
                    running.flight = Some(Flight { commit, answer: None });
                }
            }
        }
        self.replicas[at].running = Some(running);
        self.publish(at);
    }

    /// The store handles the commit in flight.
    pub(super) fn store_handles(&mut self, at: usize) {
        let luck = if self.calm { 0 } else { self.random.below(100) };
        let Some(running) = &mut self.replicas[at].running else { return };
        let serial = running.serial;
        let Some(flight) = &mut running.flight else { return };
        let unknown = || Err(CommitError::Unknown("no answer".into()));
        let answer = match luck {
            // The commit is lost, or delayed.
            90.. => {
                if luck >= 95 {
                    self.late.push((serial, flight.commit.clone()));
                }
                unknown()
            }
            82..90 => Err(CommitError::NotStored("busy".into())),
            // The commit is applied, but its answer is lost.
            74..82 => self.store.commit(&flight.commit, serial).and_then(|()| unknown()),
            // The network duplicates the commit.
            66..74 => {
                self.late.push((serial, flight.commit.clone()));
                self.store.commit(&flight.commit, serial)
            }
            _ => self.store.commit(&flight.commit, serial),
        };
        let says = format!("the store answers actor {serial}: {answer:?}");
        self.tally.add(match &answer {
            Ok(()) if self.calm => "stored in the calm",
            Ok(()) => "stored in the storm",
            Err(CommitError::Unknown(_)) => "unknown",
            Err(CommitError::NotStored(_)) => "not stored",
            Err(_) => "fenced",
        });
        flight.answer = Some(answer);
        self.say(|| says);
    }

    /// A delayed copy of a commit, for which no actor waits, arrives at the store.
    pub(super) fn late_copy(&mut self) {
        if !self.store.paused
            && let Some((serial, commit)) = self.random.draw(&mut self.late)
        {
            let answer = self.store.commit(&commit, serial);
            let stored = answer.is_ok();
            self.tally.add(if stored { "late copies stored" } else { "late copies refused" });
            self.say(|| format!("a late commit of actor {serial}: {answer:?}"));
        }
    }

    /// The store's answer arrives.
    pub(super) fn answer_arrives(&mut self, at: usize) {
        let Some(running) = &mut self.replicas[at].running else { return };
        let Some(answer) = running.flight.as_mut().and_then(|flight| flight.answer.take()) else {
            return;
        };
        running.flight = None;
        match running.actor.committed(answer) {
            After::Effects(effects) | After::Refused(effects) => running.effects.extend(effects),
            After::Again(commit) => running.flight = Some(Flight { commit, answer: None }),
            After::Ended(_) => return self.end_actor(at),
        }
        self.publish(at);
    }

    /// Publishes the stored state to watchers, never uncommitted state.
    pub(super) fn publish(&mut self, at: usize) {
        if let Some(running) = &mut self.replicas[at].running
            && running.flight.is_none()
            && running.effects.is_empty()
        {
            running.live = Some(running.actor.machine().live());
        }
    }

    /// Ends the actor but not its process: requests that waited are sent to the owner again.
    pub(super) fn end_actor(&mut self, at: usize) {
        let Some(running) = self.replicas[at].running.take() else { return };
        self.say(|| format!("actor {} ends", running.serial));
        self.tally.add("actors ended");
        if let Some(flight) = running.flight.filter(|flight| flight.answer.is_none()) {
            self.late.push((running.serial, flight.commit));
        }
        for request in running.callers.into_values() {
            // The outcome of a device's tool call is unknown: it must not be repeated.
            match self.requests[request].command {
                Command::CallDevice { .. } => {
                    let (reply, from) = (Reply::Called(Err("lost".into())), (at, running.serial));
                    self.travels.push(Travel::Reply { request, from, reply });
                }
                _ => self.send_again(request),
            }
        }
        for waiting in running.inbox {
            match waiting {
                Waiting::Request(_) if self.planted == Some(Planted::ForgetsInbox) => {}
                Waiting::Request(request) => self.send_again(request),
                Waiting::Fact(_) => {}
            }
        }
        if self.random.percent(50) {
            self.replicas[at].tasks.clear();
        }
    }

    /// Looks up the owner and sends the request again.
    fn send_again(&mut self, request: usize) {
        self.requests[request].copies -= 1;
        self.send(request);
    }

    /// An idle actor ends and releases its lease.
    pub(super) fn idle_out(&mut self, at: usize) {
        let forgets = self.planted == Some(Planted::ForgetsInbox);
        let Some(running) = &self.replicas[at].running else { return };
        let done = if running.stopping {
            running.actor.machine().is_quiet()
        } else {
            running.actor.machine().is_idle() && running.callers.is_empty()
        };
        if !done || !running.is_at_rest() || !(running.inbox.is_empty() || forgets) {
            return;
        }
        let (lease, stopping) = (running.actor.lease(), running.stopping);
        self.tally.add("idled out");
        self.end_actor(at);
        if let Some((me, fence)) = lease
            && !self.store.paused
        {
            self.store.release(me, fence);
        }
        if stopping {
            if self.random.percent(80) && !self.store.paused {
                self.store.retire(self.replicas[at].id);
                self.tally.add("retired");
            }
            self.kill(at);
        }
    }

    /// Graceful shutdown of the process begins.
    pub(super) fn stop(&mut self, at: usize) {
        if let Some(running) = &mut self.replicas[at].running
            && !running.stopping
        {
            running.stopping = true;
            running.inbox.push_back(Waiting::Fact(Fact::Stop));
            self.tally.add("stops");
            self.say(|| format!("replica {at} is told to stop"));
        }
    }

    /// The process is killed. Messages that it has sent may still arrive.
    pub(super) fn kill(&mut self, at: usize) {
        self.say(|| format!("replica {at} is killed"));
        self.tally.add("kills");
        let replica = &mut self.replicas[at];
        replica.state = State::Down;
        replica.tasks.clear();
        replica.asked.clear();
        let Some(running) = replica.running.take() else { return };
        if let Some(flight) = running.flight.filter(|flight| flight.answer.is_none())
            && self.random.percent(50)
        {
            self.late.push((running.serial, flight.commit));
        }
        if !running.effects.is_empty() {
            self.tally.add("kills before effects");
        }
        for request in running.callers.into_values() {
            self.lose(request);
        }
        for waiting in running.inbox {
            if let Waiting::Request(request) = waiting {
                self.lose(request);
            }
        }
    }
}

fn names(inputs: &[Input]) -> String {
    let name = |input: &Input| {
        let text = match input {
            Input::Command { id, command, known } => format!("{} {command:?} {known:?}", id.0),
            Input::Fact(fact) => format!("{fact:?}"),
        };
        text.chars().take(160).collect::<String>()
    };
    inputs.iter().map(name).collect::<Vec<_>>().join("; ")
}

fn new_session() -> NewSession {
    NewSession {
        id: session_id(),
        token_hash: TokenHash([1; 32]),
        listed: false,
        user: bowline_sbp::access::OWNER,
        agent_id: AgentId::fallback(),
        metadata: "{}".into(),
        at: Timestamp::UNIX_EPOCH,
    }
}
