//! Without further faults, all pending work must finish.

use std::time::Duration;

use super::World;
use super::clients::Kind;
use super::replica::State;

/// A limit that no schedule reaches unless it hangs.
const MOST_STEPS: u64 = 30_000;
/// Less than it takes until a lease is renewed.
const LITTLE: Duration = Duration::from_millis(250);

impl World {
    /// Runs until no work is left.
    pub(super) fn settle(&mut self) {
        self.say(|| "the faults stop".into());
        self.calm = true;
        self.calm_since = Some(self.elapsed);
        if self.store.paused {
            self.store.resume();
        }
        for at in 0..self.replicas.len() {
            self.recover(at);
        }
        while !self.late.is_empty() {
            self.late_copy();
        }
        while !self.late_requests.is_empty() {
            self.late_request();
        }
        let begun = self.step;
        while self.broken.is_none() && self.go_on() {
            if self.step - begun > MOST_STEPS {
                self.breaks("no end in sight".into());
            }
        }
    }

    /// Runs one step; false if no work is left.
    fn go_on(&mut self) -> bool {
        self.step += 1;
        for at in 0..self.clients.len() {
            self.surface_looks(at);
        }
        self.look();
        // Whoever is suspended waits for this, however busy its clients are.
        if self.is_unsettled() && self.random.percent(2) {
            self.settle_leases(LITTLE);
        }
        if self.progress() {
            return true;
        }
        for at in 0..self.replicas.len() {
            if self.replicas[at].running.as_ref().is_some_and(|running| running.stopping) {
                self.idle_out(at);
            }
            if self.replicas[at].state == State::Down {
                self.restart(at);
                return true;
            }
            if self.replicas[at].running.as_ref().is_some_and(|running| running.can_take()) {
                return true;
            }
        }
        if self.is_unsettled() {
            self.settle_leases(LITTLE);
            return true;
        }
        // Some clients wait for others that wait for a deadline.
        if self.random.percent(30) && self.wait() {
            return true;
        }
        (0..self.clients.len()).any(|at| self.client_moves(at)) || self.wait()
    }

    /// A client sends its next request; false if it has none.
    fn client_moves(&mut self, at: usize) -> bool {
        let client = &self.clients[at];
        let before = (self.requests.len(), client.script.len(), self.travels.len());
        let is_surface = matches!(client.kind, Kind::Surface { .. });
        if is_surface && client.is_done() && client.link.is_some() {
            self.leave(at);
        } else {
            self.client_acts(at);
        }
        let client = &self.clients[at];
        before != (self.requests.len(), client.script.len(), self.travels.len())
    }

    /// Advances time to the next deadline; false if there is none.
    fn wait(&mut self) -> bool {
        let running = self.replicas.iter().filter_map(|replica| replica.running.as_ref());
        let next = running.filter_map(|running| running.actor.deadline()).min();
        let Some(next) = next else { return false };
        let next = next.saturating_duration_since(self.begun) + Duration::from_millis(1);
        // In small steps: a jump past a lease would keep its replica from renewing it.
        while self.elapsed < next && self.broken.is_none() {
            self.settle_leases(LITTLE.min(next - self.elapsed));
        }
        for at in 0..self.replicas.len() {
            self.deadline(at);
        }
        true
    }
}
