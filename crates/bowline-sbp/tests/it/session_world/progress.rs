//! Pending work: messages, commits, effects and tasks, of which a random one proceeds.

use bowline_sbp::session::liveness::Event;

use super::World;
use super::replica::State;

#[derive(Debug, Clone, Copy)]
enum Pending {
    /// A message arrives.
    Travel,
    Take(usize),
    /// The store handles a commit, even if its sender is paused.
    Store(usize),
    Answer(usize),
    Effects(usize),
    Task(usize),
    /// A timer of its liveness.
    Timer(usize),
    /// The store handles a request about leases.
    Lease(usize),
    LeaseAnswer(usize),
}

impl World {
    /// Lets one random piece of pending work proceed; false if there is none.
    pub(super) fn progress(&mut self) -> bool {
        let (mut pending, paused) = (Vec::new(), self.store.paused);
        if !self.travels.is_empty() {
            pending.extend([Pending::Travel; 2]);
        }
        for (at, replica) in self.replicas.iter().enumerate() {
            let up = replica.is_up();
            if up && !replica.tasks.is_empty() {
                pending.push(Pending::Task(at));
            }
            if up && self.is_due(at) {
                pending.push(Pending::Timer(at));
            }
            if replica.has_request() && !(paused && self.calm) {
                pending.push(Pending::Lease(at));
            }
            if up && replica.has_answer() {
                pending.push(Pending::LeaseAnswer(at));
            }
            let Some(running) = &replica.running else { continue };
            match &running.flight {
                Some(flight) if flight.answer.is_none() && paused => {}
                Some(flight) if flight.answer.is_none() => pending.push(Pending::Store(at)),
                Some(_) if up => pending.push(Pending::Answer(at)),
                _ if up && !running.effects.is_empty() => {
                    pending.extend(self.may_go_on(at).then_some(Pending::Effects(at)));
                }
                _ if up && running.can_take() && !paused => pending.push(Pending::Take(at)),
                _ => {}
            }
        }
        match self.random.pick(&pending).copied() {
            None => return false,
            Some(Pending::Travel) => self.arrive(),
            Some(Pending::Take(at)) => self.take(at),
            Some(Pending::Store(at)) => self.store_handles(at),
            Some(Pending::Answer(at)) => self.answer_arrives(at),
            Some(Pending::Effects(at)) => self.carry_out(at),
            Some(Pending::Task(at)) => self.task_ends(at),
            Some(Pending::Timer(at)) => self.lives_on(at, Event::Deadline),
            Some(Pending::Lease(at)) => self.store_is_asked(at),
            Some(Pending::LeaseAnswer(at)) => self.replica_is_answered(at),
        }
        true
    }

    /// Resumes a paused replica, restarts one that is down.
    pub(super) fn recover(&mut self, at: usize) {
        match self.replicas[at].state {
            State::Up => {}
            State::Paused => self.wake(at),
            State::Down => self.restart(at),
        }
    }
}
