//! Faults of replicas (kills, pauses, false death), and time, tasks and take-overs.

use std::time::Duration;

use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::{SnapshotId, TurnId};
use bowline_sbp::session::{Fact, Packed, ReplicaId};
use serde_json::json;

use super::World;
use super::replica::{Replica, State, Task, Waiting};
use super::request::Travel;
use super::tools;

impl World {
    /// Injects a fault, or ends one.
    pub(super) fn trouble(&mut self) {
        let at = self.random.below(self.replicas.len());
        let state = self.replicas[at].state;
        match (state, self.random.below(100)) {
            (State::Up, 0..14) => self.kill(at),
            (State::Up, 14..26) => {
                self.say(|| format!("replica {at} pauses"));
                self.tally.add("pauses");
                self.replicas[at].state = State::Paused;
            }
            // Declared dead although it is alive.
            (State::Up, 26..29) => self.declare_dead(at),
            // The actor's task fails; the process continues.
            (State::Up, 29..39) => self.end_actor(at),
            (State::Up, 39..44) => self.stop(at),
            (State::Up, 44..) => self.renew(at),
            (State::Paused, 0..40) => self.declare_dead(at),
            (State::Paused, _) => self.wake(at),
            (State::Down, 0..50) => self.declare_dead(at),
            (State::Down, _) => self.restart(at),
        }
    }

    fn declare_dead(&mut self, at: usize) {
        let replica = self.replicas[at].id;
        if !self.store.is_dead(replica) {
            self.say(|| format!("replica {at} is declared dead"));
            self.tally.add("declared dead");
            self.store.declare_dead(replica);
        }
    }

    pub(super) fn wake(&mut self, at: usize) {
        self.say(|| format!("replica {at} wakes"));
        self.replicas[at].state = State::Up;
    }

    /// A restarted process has a new replica id; the old one is not declared dead yet.
    pub(super) fn restart(&mut self, at: usize) {
        self.old.push(self.replicas[at].id);
        self.replicas[at] = Replica::new(ReplicaId(self.random.uuid()));
        self.say(|| format!("replica {at} is back"));
    }

    /// A replica finds out that it was declared dead: it drops its actor and takes a new id.
    pub(super) fn renew(&mut self, at: usize) {
        if self.store.is_dead(self.replicas[at].id) {
            self.end_actor(at);
            self.replicas[at].tasks.clear();
            self.replicas[at].id = ReplicaId(self.random.uuid());
            self.say(|| format!("replica {at} takes a new name"));
        }
    }

    /// Declares dead an id whose process has ended.
    pub(super) fn bury(&mut self) {
        if let Some(replica) = self.old.pop() {
            self.store.declare_dead(replica);
        }
    }

    /// A replica takes over unfinished work without a live owner.
    pub(super) fn take_over(&mut self, at: usize) {
        let replica = &self.replicas[at];
        let free = self.store.owner().is_none_or(|owner| owner == replica.id);
        let work = self.store.rows.as_ref().is_some_and(|rows| !rows.turns.is_empty());
        if replica.is_up() && replica.running.is_none() && free && work {
            self.tally.add("taken over");
            self.start_actor(at);
        }
    }

    /// Advances time; a deadline may expire.
    pub(super) fn time_passes(&mut self, at: usize) {
        let by = if self.random.percent(20) { self.random.below(8000) } else { 20 };
        self.elapsed += Duration::from_millis(by as u64);
        self.deadline(at);
    }

    pub(super) fn deadline(&mut self, at: usize) {
        let now = self.begun + self.elapsed;
        if let Some(running) = &mut self.replicas[at].running
            && running.actor.deadline().is_some_and(|deadline| deadline <= now)
            && !running.inbox.iter().any(|waiting| matches!(waiting, Waiting::Fact(Fact::Deadline)))
        {
            running.inbox.push_back(Waiting::Fact(Fact::Deadline));
            self.tally.add("deadlines");
        }
    }

    /// One of a replica's tasks ends and reports, perhaps twice.
    pub(super) fn task_ends(&mut self, at: usize) {
        let Some(task) = self.random.draw(&mut self.replicas[at].tasks) else { return };
        // Packing a bundle takes long, so that other events happen meanwhile.
        if matches!(task, Task::Pack { .. }) && !self.calm && self.random.percent(90) {
            return self.replicas[at].tasks.push(task);
        }
        let now = self.now();
        let fact = match task {
            Task::Round(round) => {
                let end = round.end(&mut self.random, now);
                let (turn, attempt, round) = (round.turn, round.attempt, round.round);
                Fact::RoundEnded { turn, attempt, round, end }
            }
            Task::Replan { turn, attempt } => {
                let Some(rows) = &self.store.rows else { return };
                let plan = match self.random.below(20) {
                    0 => Err(Failure::new(Code::Internal, "the log cannot be read")),
                    _ => Ok(tools::replan(&mut self.random, turn, &rows.entries, now)),
                };
                Fact::Replanned { turn, attempt, plan }
            }
            Task::Call { call, input } => Fact::CallEnded { call, result: Ok(input) },
            Task::Pack { handoff, last_seq } => {
                let packed = Packed {
                    cid: [0; 32],
                    with_memory: false,
                    message_count: last_seq,
                    expires_at: now.at,
                    bridge: Vec::new(),
                    bridge_turn: TurnId(now.fresh),
                    snapshot: SnapshotId(now.fresh),
                    detail: json!({}).to_string(),
                };
                let failure = Failure::new(Code::Internal, "the bundle cannot be made");
                let fails = self.random.percent(30);
                let packed = if fails { Err(failure) } else { Ok(Box::new(packed)) };
                Fact::Packed { id: handoff.id, last_seq, packed }
            }
        };
        if !self.calm && self.random.percent(10) {
            self.travels.push(Travel::Fact { to: at, fact: fact.clone() });
        }
        self.travels.push(Travel::Fact { to: at, fact });
    }
}
