//! Drives the liveness of each replica: its requests to the store, which may come late or never, and
//! what follows from their answers.

use std::time::Duration;

use bowline_sbp::session::liveness::{Action, Event, Liveness, Renewal, Timing};
use bowline_sbp::session::{Effect, ReplicaId};

use super::World;
use super::planted::Planted;
use super::replica::State;

/// After this the driver takes a request for failed. The store may still carry it out.
const PATIENCE: Duration = Duration::from_secs(1);
/// Without faults nobody is declared dead after this time, except whose process has ended.
const CALM: Duration = Duration::from_secs(6);

/// A request of a replica to the store.
#[derive(Debug)]
pub(super) struct Asked {
    action: Action,
    sent: Duration,
    /// The store's answer, once it has carried it out.
    answer: Option<Event>,
}

impl Asked {
    pub(super) fn is_answered(&self) -> bool {
        self.answer.is_some()
    }
}

impl World {
    /// Time passes, for the replicas and for the database.
    pub(super) fn pass(&mut self, by: Duration) {
        self.elapsed += by;
        self.store.time_passes(by);
    }

    /// A new process: it registers itself before it does anything else.
    pub(super) fn liveness_of(&mut self, replica: ReplicaId) -> Liveness {
        self.store.register(replica);
        Liveness::new(replica, self.timing(), self.begun + self.elapsed)
    }

    fn timing(&self) -> Timing {
        let timing = Timing::default();
        match self.planted {
            Some(Planted::ServesForEver) => {
                Timing { lease: Duration::from_secs(1_000_000), ..timing }
            }
            _ => timing,
        }
    }

    pub(super) fn is_due(&self, at: usize) -> bool {
        let now = self.begun + self.elapsed;
        self.replicas[at].liveness.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// The liveness of a replica handles an event.
    pub(super) fn lives_on(&mut self, at: usize, event: Event) {
        let now = self.begun + self.elapsed;
        self.say(|| format!("replica {at}: {event:?}"));
        for action in self.replicas[at].liveness.handle(event, now) {
            match action {
                Action::Renew(_)
                | Action::Look
                | Action::DeclareDead { .. }
                | Action::TakeOver(_)
                | Action::Register(_) => {
                    let sent = self.elapsed;
                    self.replicas[at].asked.push(Asked { action, sent, answer: None });
                }
                Action::Suspend => self.tally.add("suspended"),
                Action::Resume => self.tally.add("resumed"),
                Action::ReplicaDead(_) => self.tally.add("deaths noticed"),
                Action::AbandonAll => self.abandon_all(at),
                Action::Rest => self.breaks("leases end here".into()),
            }
        }
    }

    fn abandon_all(&mut self, at: usize) {
        self.tally.add("abandoned");
        self.end_actor(at);
        self.replicas[at].tasks.clear();
        let fresh = ReplicaId(self.random.uuid());
        self.replicas[at].id = fresh;
        self.say(|| format!("replica {at} goes on under another id"));
        self.lives_on(at, Event::Abandoned(fresh));
    }

    /// The store carries out one of a replica's requests, even if that is paused; or the request
    /// fails, and is perhaps carried out later.
    pub(super) fn store_is_asked(&mut self, at: usize) {
        let open = |asked: &Asked| asked.answer.is_none();
        let Some(index) = self.replicas[at].asked.iter().position(open) else { return };
        let asked = &self.replicas[at].asked[index];
        let (action, late) = (asked.action, self.elapsed >= asked.sent + PATIENCE);
        let fails = late && !self.calm && self.random.percent(20);
        let answer = match fails || self.store.paused {
            true if !late => return,
            true => {
                self.tally.add("requests of replicas failed");
                if !self.calm && self.random.percent(50) {
                    self.late_requests.push(action);
                }
                failed(action)
            }
            false => self.carry_out_request(action),
        };
        self.replicas[at].asked[index].answer = Some(answer);
    }

    /// The answer to a replica's request arrives.
    pub(super) fn replica_is_answered(&mut self, at: usize) {
        let done = |asked: &Asked| asked.answer.is_some();
        let Some(index) = self.replicas[at].asked.iter().position(done) else { return };
        let Asked { action, answer, .. } = self.replicas[at].asked.remove(index);
        let Some(mut answer) = answer else { return };
        let lost = !self.calm && self.random.percent(5);
        if lost {
            answer = failed(action);
        }
        match &answer {
            Event::TookOver(true) => self.take_over(at),
            Event::Looked(Some(leases)) if self.planted == Some(Planted::DeclaresAfterOneLook) => {
                let others = leases.iter().filter(|lease| lease.id != self.replicas[at].id);
                let expired = others.filter(|lease| lease.has_expired);
                let declares = expired.filter_map(|lease| {
                    let (replica, seen) = (lease.id, lease.expires_at?);
                    let action = Action::DeclareDead { replica, seen };
                    Some(Asked { action, sent: self.elapsed, answer: None })
                });
                let declares: Vec<_> = declares.collect();
                self.replicas[at].asked.extend(declares);
            }
            _ => {}
        }
        self.lives_on(at, answer);
    }

    /// A request whose sender took it for failed is carried out after all.
    pub(super) fn late_request(&mut self) {
        if !self.store.paused
            && let Some(action) = self.random.draw(&mut self.late_requests)
        {
            let _nobody_waits = self.carry_out_request(action);
        }
    }

    fn carry_out_request(&mut self, action: Action) -> Event {
        match action {
            Action::Renew(me) => Event::Renewed(match self.store.renew(me) {
                true => Renewal::Extended,
                false => Renewal::Dead,
            }),
            Action::Look => Event::Looked(Some(self.store.look_at_replicas())),
            Action::DeclareDead { replica, seen } => {
                let dead = self.store.declare_dead(replica, seen);
                if dead {
                    self.declared(replica);
                }
                Event::Declared(replica, dead)
            }
            Action::Register(me) => {
                self.store.register(me);
                Event::Registered(true)
            }
            _ => Event::TookOver(true),
        }
    }

    fn declared(&mut self, replica: ReplicaId) {
        self.say(|| format!("{replica:?} is declared dead"));
        self.tally.add("declared dead");
        let lives = self.replicas.iter().find(|r| r.id == replica && r.is_up());
        if lives.is_some() {
            self.tally.add("declared dead alive");
            if self.calm_since.is_some_and(|since| self.elapsed > since + CALM) {
                self.breaks("a replica that renews was declared dead".into());
            }
        }
    }

    /// Whether its actor may carry out what is next: no work is started under a lease that may have
    /// ended (G14).
    pub(super) fn may_go_on(&self, at: usize) -> bool {
        let replica = &self.replicas[at];
        let now = self.begun + self.elapsed;
        replica.liveness.serves(now)
            || replica.running.as_ref().is_some_and(|running| {
                !running.effects.iter().any(|effect| {
                    matches!(effect, Effect::StartRound { .. } | Effect::Replan { .. })
                })
            })
    }

    /// A replica starts a round: nobody else may have taken the session over by then.
    pub(super) fn check_start(&mut self, at: usize) {
        if !self.store.lease_holds(self.replicas[at].id) {
            self.breaks("a round is started under a lease that has ended".into());
        }
    }

    /// Whether the replicas have still to find out who is dead and what was left.
    pub(super) fn is_unsettled(&self) -> bool {
        let now = self.begun + self.elapsed;
        let current = |id: &ReplicaId| self.replicas.iter().any(|replica| replica.id == *id);
        let ended = self.store.alive().any(|id| !current(&id));
        let joining = self.replicas.iter().any(|replica| {
            replica.is_up() && (!replica.liveness.serves(now) || self.store.is_dead(replica.id))
        });
        let turns = self.store.rows.as_ref().is_some_and(|rows| !rows.turns.is_empty());
        let owner = self.store.owner();
        let owned = self
            .replicas
            .iter()
            .any(|replica| Some(replica.id) == owner && replica.running.is_some());
        ended || joining || (turns && !owned)
    }

    /// Time passes for everybody, after all requests about leases were answered.
    pub(super) fn settle_leases(&mut self, by: Duration) {
        for at in 0..self.replicas.len() {
            while self.replicas[at].is_up() && self.replicas[at].has_request() {
                self.store_is_asked(at);
            }
            while self.replicas[at].is_up() && self.replicas[at].has_answer() {
                self.replica_is_answered(at);
            }
        }
        self.pass(by);
        for at in 0..self.replicas.len() {
            if self.replicas[at].state == State::Up && self.is_due(at) {
                self.lives_on(at, Event::Deadline);
            }
        }
    }
}

/// The answer if the store cannot be asked.
fn failed(action: Action) -> Event {
    match action {
        Action::Renew(_) => Event::Renewed(Renewal::Failed),
        Action::Look => Event::Looked(None),
        Action::DeclareDead { replica, .. } => Event::Declared(replica, false),
        Action::Register(_) => Event::Registered(false),
        _ => Event::TookOver(false),
    }
}
