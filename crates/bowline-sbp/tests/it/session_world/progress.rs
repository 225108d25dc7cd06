//! What is under way, and takes its next step.

use super::World;
use super::replica::State;

#[derive(Debug, Clone, Copy)]
enum Pending {
    /// Something arrives.
    Travel,
    Take(usize),
    /// The store looks at a commit, whoever pauses.
    Store(usize),
    Answer(usize),
    Effects(usize),
    Task(usize),
}

impl World {
    /// One thing that is under way goes on, by chance; false if there is none.
    pub(super) fn progress(&mut self) -> bool {
        let mut pending = Vec::new();
        if !self.travels.is_empty() {
            pending.extend([Pending::Travel; 2]);
        }
        for (at, replica) in self.replicas.iter().enumerate() {
            let up = replica.is_up();
            if up && !replica.tasks.is_empty() {
                pending.push(Pending::Task(at));
            }
            let Some(running) = &replica.running else { continue };
            match &running.flight {
                Some(flight) if flight.answer.is_none() => pending.push(Pending::Store(at)),
                Some(_) if up => pending.push(Pending::Answer(at)),
                _ if up && !running.effects.is_empty() => pending.push(Pending::Effects(at)),
                _ if up && running.can_take() => pending.push(Pending::Take(at)),
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
        }
        true
    }

    /// A replica that does nothing goes on, or comes back.
    pub(super) fn recover(&mut self, at: usize) {
        match self.replicas[at].state {
            State::Up => self.renew(at),
            State::Paused => self.wake(at),
            State::Down => self.restart(at),
        }
    }
}
