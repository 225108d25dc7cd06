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
            // The actor's task fails; the process continues.
            (State::Up, 26..36) => self.end_actor(at),
            (State::Up, 36..41) => self.stop(at),
            (State::Up, 41..) => self.database_trouble(),
            (State::Paused, 0..30) => self.wake(at),
            (State::Down, 0..30) => self.restart(at),
            (State::Paused | State::Down, _) => {}
        }
    }

    /// The database pauses, goes on, or has its clock set.
    fn database_trouble(&mut self) {
        match self.random.below(100) {
            _ if self.store.paused => {
                self.say(|| "the database goes on".into());
                self.store.resume();
            }
            0..25 => {
                self.say(|| "the database pauses".into());
                self.tally.add("database pauses");
                self.store.pause();
            }
            25..35 => {
                let by = Duration::from_millis(self.random.below(20_000) as u64);
                self.say(|| format!("the clock of the database goes {by:?} forward"));
                self.tally.add("clock steps");
                self.store.step_clock(self.store.clock() + by);
            }
            35..40 => {
                let by = Duration::from_millis(self.random.below(5000) as u64);
                self.say(|| format!("the clock of the database goes {by:?} back"));
                self.tally.add("clock steps back");
                self.store.step_clock(self.store.clock() - by);
            }
            _ => {}
        }
    }

    pub(super) fn wake(&mut self, at: usize) {
        self.say(|| format!("replica {at} wakes"));
        self.replicas[at].state = State::Up;
    }

    /// A restarted process has a new replica id; the old one is not declared dead yet.
    pub(super) fn restart(&mut self, at: usize) {
        // It ends again if it cannot register itself.
        if self.store.paused {
            return;
        }
        let id = ReplicaId(self.random.uuid());
        self.replicas[at] = Replica::new(id, self.liveness_of(id));
        self.say(|| format!("replica {at} is back"));
    }

    /// A replica takes over unfinished work without a live owner.
    pub(super) fn take_over(&mut self, at: usize) {
        let me = self.replicas[at].id;
        let free = self.store.owner().is_none_or(|owner| owner == me);
        let work = self.store.rows.as_ref().is_some_and(|rows| !rows.turns.is_empty());
        if !free || !work {
            return;
        }
        self.end_stale_actor(at);
        if self.replicas[at].running.is_none() {
            self.tally.add("taken over");
            self.start_actor(at);
        }
    }

    /// The store has turns, and the actor here knows of none: others have written since it was loaded.
    fn end_stale_actor(&mut self, at: usize) {
        let running = self.replicas[at].running.as_ref();
        let rests = running
            .is_some_and(|running| running.is_at_rest() && running.actor.machine().turns() == 0);
        if rests {
            self.tally.add("stale actors ended");
            self.end_actor(at);
        }
    }

    /// Advances time; a deadline may expire.
    pub(super) fn time_passes(&mut self, at: usize) {
        let by = match self.random.below(100) {
            0..20 => self.random.below(8000),
            20..60 => self.random.below(800),
            _ => 20,
        };
        self.pass(Duration::from_millis(by as u64));
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
        // The log cannot be read.
        if self.store.paused && matches!(task, Task::Replan { .. } | Task::Pack { .. }) {
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
