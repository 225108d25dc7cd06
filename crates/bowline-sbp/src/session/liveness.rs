//! Whether this replica may serve, and which other replicas are dead (G14, G19).
//!
//! Every replica has one row in the store with the time at which its lease ends, by the clock of the
//! database. It renews that lease, and looks at the rows of the others. Apart from the task that
//! drives it, because stopped processes, paused databases and stepped clocks must be testable without
//! waiting for them. Pure: callers pass `now` and report how each action went.
//!
//! | what happens | what follows |
//! |---|---|
//! | its lease is renewed | it serves until shortly before that lease can end |
//! | it cannot renew for so long | it suspends: starts nothing and loses nothing |
//! | a renewal says "dead" | it abandons everything, and joins again under another id |
//! | two looks see the same expired lease | it declares that replica dead |
//! | a replica is dead | its surfaces are gone; its unfinished turns are taken over |
//!
//! Invariants
//! - The own lease is judged by the own monotonic clock, from the time before the renewal was sent; those
//!   of others by the word of the database (G14). Safety depends on neither: the fence decides (G19).
//! - The second look is sent at least [`Timing::apart`] after the first was answered: whoever was held up
//!   by a paused database, or by a step of its clock, has renewed by then.
//! - Of each kind, one request to the store is under way at a time.
//! - In a store whose leases never end, there is nothing to do: no [`Liveness::deadline`].

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::commit::ReplicaId;

/// A replica that is not dead, as a look shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaLease {
    pub id: ReplicaId,
    /// When its lease ends, by the clock of the database; none: never.
    pub expires_at: Option<Timestamp>,
    /// Whether that time has passed, by the same clock.
    pub has_expired: bool,
}

/// How often a replica renews and looks.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long a lease lasts after it was renewed.
    pub lease: Duration,
    /// How long before its end a replica stops serving.
    pub margin: Duration,
    pub renew_every: Duration,
    pub look_every: Duration,
    /// The least time between the two looks that declare a replica dead.
    pub apart: Duration,
    /// The pause after a request that failed.
    pub retry_after: Duration,
    /// How often unfinished turns are looked for although nobody died: an actor may have panicked.
    pub take_over_every: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(3),
            margin: Duration::from_millis(250),
            renew_every: Duration::from_millis(750),
            look_every: Duration::from_millis(500),
            apart: Duration::from_secs(1),
            retry_after: Duration::from_millis(250),
            take_over_every: Duration::from_secs(10),
        }
    }
}

/// What happened. Each action but the last four is answered by one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The time of [`Liveness::deadline`] has come.
    Deadline,
    Renewed(Renewal),
    /// The replicas that are not dead; none if the store could not be asked.
    Looked(Option<Vec<ReplicaLease>>),
    /// Whether that replica is dead now; false also if the store could not be asked.
    Declared(ReplicaId, bool),
    /// Unfinished turns were looked for, and taken over; false if the store could not be asked.
    TookOver(bool),
    /// Everything was given up; the id under which this process goes on.
    Abandoned(ReplicaId),
    /// Whether the new id is in the store; false also if that is unknown.
    Registered(bool),
}

/// How a renewal went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    Extended,
    /// This replica was declared dead, and stays so.
    Dead,
    /// The store did not answer, or not in time.
    Failed,
}

/// What the driver does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Renew(ReplicaId),
    Look,
    DeclareDead {
        replica: ReplicaId,
        /// When its lease ended, as two looks have seen it.
        seen: Timestamp,
    },
    /// Start the actors of sessions with unfinished turns that no live replica owns.
    TakeOver(ReplicaId),
    /// End all actors without another write and close all surfaces, then go on under another id.
    AbandonAll,
    Register(ReplicaId),
    /// A replica is dead: surfaces whose sockets it held are gone.
    ReplicaDead(ReplicaId),
    /// The lease may end: start no rounds and serve no surfaces until [`Action::Resume`].
    Suspend,
    Resume,
    /// The leases of this store never end.
    Rest,
}

/// The liveness of one replica.
#[derive(Debug, Clone)]
pub struct Liveness {
    timing: Timing,
    me: ReplicaId,
    standing: Standing,
    renewal: Request,
    look: Request,
    take_over: Request,
    /// A replica died while unfinished turns were already looked for.
    take_over_again: bool,
    /// The other replicas of the last look.
    others: BTreeMap<ReplicaId, Option<Suspicion>>,
}

/// What this replica is to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Serves until then, unless it renews earlier.
    Serving { until: Instant },
    /// Has not renewed in time; perhaps it is dead, perhaps not.
    Suspended,
    /// Is dead, and ends its actors.
    Abandoning,
    /// Registers a new id; `first`: when it first tried.
    Joining { first: Instant, request: Request },
    /// The store's leases never end.
    Resting,
}

/// A request to the store that is made again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Due(Instant),
    /// Under way since then.
    Sent(Instant),
}

/// A replica whose lease was seen expired.
#[derive(Debug, Clone, Copy)]
struct Suspicion {
    expires_at: Timestamp,
    /// When the first look that saw it was answered.
    since: Instant,
    /// It is being declared dead.
    declaring: bool,
}

impl Liveness {
    /// A replica that began to register itself at `sent`, and has done so.
    pub fn new(me: ReplicaId, timing: Timing, sent: Instant) -> Self {
        let due = Request::Due(sent);
        Self {
            me,
            standing: Standing::Serving { until: sent + timing.lease - timing.margin },
            timing,
            renewal: due,
            look: due,
            take_over: due,
            take_over_again: false,
            others: BTreeMap::new(),
        }
    }

    /// The id of this replica at present.
    pub fn me(&self) -> ReplicaId {
        self.me
    }

    /// Whether it may start rounds and serve surfaces: its lease cannot have ended yet.
    pub fn serves(&self, now: Instant) -> bool {
        match self.standing {
            Standing::Serving { until } => now < until,
            Standing::Resting => true,
            Standing::Suspended | Standing::Abandoning | Standing::Joining { .. } => false,
        }
    }

    /// Until when it serves if it does not renew; none: it does not serve, or for ever.
    pub fn serves_until(&self) -> Option<Instant> {
        match self.standing {
            Standing::Serving { until } => Some(until),
            _ => None,
        }
    }

    /// When [`Event::Deadline`] is expected.
    pub fn deadline(&self) -> Option<Instant> {
        let (renewal, look, take_over) =
            (self.renewal.due(), self.look.due(), self.take_over.due());
        match self.standing {
            Standing::Serving { until } => {
                [Some(until), renewal, look, take_over].into_iter().flatten().min()
            }
            Standing::Suspended => renewal.into_iter().chain(look).min(),
            Standing::Joining { request, .. } => request.due(),
            Standing::Abandoning | Standing::Resting => None,
        }
    }

    /// Handles an event. The actions are begun in order; none waits for the end of another.
    pub fn handle(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Deadline => {}
            Event::Renewed(renewal) => self.renewed(renewal, now, &mut actions),
            Event::Looked(leases) => self.looked(leases, now, &mut actions),
            Event::Declared(replica, true) => self.is_dead(replica, now, &mut actions),
            Event::Declared(replica, false) => {
                // It has renewed meanwhile, or somebody else has declared it: the next look tells.
                self.others.entry(replica).and_modify(|suspicion| *suspicion = None);
            }
            Event::TookOver(done) => {
                let pause =
                    if done { self.timing.take_over_every } else { self.timing.retry_after };
                let again = std::mem::take(&mut self.take_over_again);
                self.take_over = Request::Due(if done && again { now } else { now + pause });
            }
            Event::Abandoned(fresh) => {
                if self.standing == Standing::Abandoning {
                    self.me = fresh;
                    self.standing = Standing::Joining { first: now, request: Request::Due(now) };
                }
            }
            Event::Registered(done) => self.registered(done, now),
        }
        self.go_on(now, &mut actions);
        actions
    }

    fn renewed(&mut self, renewal: Renewal, now: Instant, actions: &mut Vec<Action>) {
        let Request::Sent(sent) = self.renewal else { return };
        self.renewal = match renewal {
            Renewal::Extended => {
                let until = sent + self.timing.lease - self.timing.margin;
                // An answer that came too late proves nothing any more.
                if now < until {
                    if self.standing == Standing::Suspended {
                        actions.push(Action::Resume);
                    }
                    self.standing = Standing::Serving { until };
                }
                Request::Due(now.max(sent + self.timing.renew_every))
            }
            Renewal::Failed => Request::Due(now + self.timing.retry_after),
            Renewal::Dead => {
                if self.standing != Standing::Suspended {
                    actions.push(Action::Suspend);
                }
                actions.push(Action::AbandonAll);
                self.standing = Standing::Abandoning;
                self.others.clear();
                Request::Due(now)
            }
        };
    }

    fn registered(&mut self, done: bool, now: Instant) {
        let Standing::Joining { first, request: Request::Sent(_) } = self.standing else { return };
        if !done {
            let request = Request::Due(now + self.timing.retry_after);
            self.standing = Standing::Joining { first, request };
            return;
        }
        // Serves again once it has renewed: if the first try was stored, its lease may have ended.
        self.standing = Standing::Suspended;
        self.renewal = Request::Due(now);
        // Whatever died meanwhile may have left turns.
        self.take_over_soon(now);
    }

    fn looked(
        &mut self,
        leases: Option<Vec<ReplicaLease>>,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Request::Sent(sent) = self.look else { return };
        let Some(leases) = leases else {
            self.look = Request::Due(now + self.timing.retry_after.max(self.timing.look_every));
            return;
        };
        self.look = Request::Due(now.max(sent + self.timing.look_every));
        if matches!(self.standing, Standing::Abandoning | Standing::Joining { .. }) {
            return;
        }
        if leases.iter().any(|lease| lease.id == self.me && lease.expires_at.is_none()) {
            self.standing = Standing::Resting;
            return actions.push(Action::Rest);
        }
        let gone = self.others.keys().filter(|id| leases.iter().all(|lease| lease.id != **id));
        for replica in gone.copied().collect::<Vec<_>>() {
            self.is_dead(replica, now, actions);
        }
        for lease in leases.into_iter().filter(|lease| lease.id != self.me) {
            let suspicion = self.others.entry(lease.id).or_default();
            let Some(expires_at) = lease.expires_at.filter(|_| lease.has_expired) else {
                *suspicion = None;
                continue;
            };
            match suspicion {
                Some(known) if known.expires_at == expires_at => {
                    if !known.declaring && sent >= known.since + self.timing.apart {
                        known.declaring = true;
                        let replica = lease.id;
                        actions.push(Action::DeclareDead { replica, seen: expires_at });
                    }
                }
                _ => *suspicion = Some(Suspicion { expires_at, since: now, declaring: false }),
            }
        }
    }

    /// A replica was declared dead, or has retired.
    fn is_dead(&mut self, replica: ReplicaId, now: Instant, actions: &mut Vec<Action>) {
        if self.others.remove(&replica).is_some() {
            actions.push(Action::ReplicaDead(replica));
            self.take_over_soon(now);
        }
    }

    fn take_over_soon(&mut self, now: Instant) {
        match self.take_over {
            Request::Due(_) => self.take_over = Request::Due(now),
            Request::Sent(_) => self.take_over_again = true,
        }
    }

    /// Does what is due.
    fn go_on(&mut self, now: Instant, actions: &mut Vec<Action>) {
        match &mut self.standing {
            Standing::Serving { until } if *until <= now => {
                self.standing = Standing::Suspended;
                actions.push(Action::Suspend);
            }
            Standing::Joining { request, .. } => {
                if request.begins(now) {
                    actions.push(Action::Register(self.me));
                }
                return;
            }
            Standing::Abandoning | Standing::Resting => return,
            Standing::Serving { .. } | Standing::Suspended => {}
        }
        if self.renewal.begins(now) {
            actions.push(Action::Renew(self.me));
        }
        if self.look.begins(now) {
            actions.push(Action::Look);
        }
        // A replica that cannot renew could not write what it takes over.
        if self.standing != Standing::Suspended && self.take_over.begins(now) {
            actions.push(Action::TakeOver(self.me));
        }
    }
}

impl Request {
    fn due(self) -> Option<Instant> {
        match self {
            Request::Due(when) => Some(when),
            Request::Sent(_) => None,
        }
    }

    /// Begins the request if it is due.
    fn begins(&mut self, now: Instant) -> bool {
        let begins = matches!(self, Request::Due(when) if *when <= now);
        if begins {
            *self = Request::Sent(now);
        }
        begins
    }
}
