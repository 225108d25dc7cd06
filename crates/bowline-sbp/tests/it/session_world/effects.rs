//! Executes effects, and checks that each was committed before.

use bowline_sbp::session::{Command, DeviceChange, Effect, Refusal, Reply, Work};

use super::World;
use super::model::Round;
use super::replica::Task;
use super::request::Travel;
use super::tools;

impl World {
    /// Executes the next few effects of an actor, in order.
    pub(super) fn carry_out(&mut self, at: usize) {
        let Some(running) = &self.replicas[at].running else { return };
        let many = 1 + self.random.below(running.effects.len().max(1));
        for _ in 0..many {
            if !self.may_go_on(at) {
                break;
            }
            let Some(running) = &mut self.replicas[at].running else { return };
            let Some(effect) = running.effects.pop_front() else { break };
            if matches!(effect, Effect::End) {
                return self.end_actor(at);
            }
            self.effect(at, effect);
        }
        self.publish(at);
    }

    fn effect(&mut self, at: usize, effect: Effect) {
        let Some(running) = &mut self.replicas[at].running else { return };
        let serial = running.serial;
        match effect {
            Effect::Reply { to, reply } => match running.callers.remove(&to) {
                Some(request) => {
                    self.check_reply(serial, request, &reply);
                    let text = format!("actor {serial} answers {request}: {reply:?}");
                    self.say(|| text.chars().take(200).collect());
                    self.travels.push(Travel::Reply { request, from: (at, serial), reply });
                }
                None => self.breaks(format!("{to:?} is answered twice: {reply:?}")),
            },
            Effect::StartRound { turn, attempt, round, .. } => {
                let stopped = running.cancelled.contains(&turn);
                let is_stopped_next = running
                    .effects
                    .iter()
                    .any(|next| matches!(next, Effect::StopRound { turn: next } if *next == turn));
                let machine = running.actor.machine();
                let (asked, gone) = (machine.request(turn), machine.is_gone());
                self.say(|| format!("actor {serial} starts round {round} of {turn}, {attempt}"));
                self.check_start(at);
                let past = &self.store.past;
                if !past.started.contains(&(turn, attempt)) && !past.forgotten.contains(&turn) {
                    self.breaks(format!("attempt {attempt} of {turn} runs and is not stored"));
                }
                if stopped && !is_stopped_next {
                    self.breaks(format!("{turn} goes on although it was cancelled"));
                }
                let again = !self.rounds.insert((turn, attempt, round));
                if again && !self.store.past.forgotten.contains(&turn) {
                    self.breaks(format!("round {round} of {turn}, {attempt} runs twice"));
                }
                let Some((request, advanced)) = asked else {
                    // The same commit deleted the session.
                    if !gone {
                        self.breaks(format!("nobody knows what {turn} is about"));
                    }
                    return;
                };
                let round = Round { turn, attempt, round, request, advanced, stopped: false };
                self.replicas[at].tasks.push(Task::Round(round));
            }
            Effect::Replan { turn, attempt } => {
                self.tally.add("replans");
                if !self.store.past.started.contains(&(turn, attempt)) {
                    self.breaks(format!("attempt {attempt} of {turn} runs and is not stored"));
                }
                self.replicas[at].tasks.push(Task::Replan { turn, attempt });
            }
            Effect::StopRound { turn } => {
                running.cancelled.push(turn);
                for task in &mut self.replicas[at].tasks {
                    if let Task::Round(round) = task {
                        round.stopped |= round.turn == turn;
                    }
                }
            }
            Effect::RunCall { call, work, .. } => match work {
                Work::Task { tool, input } => {
                    self.runs_call(&tool, input["call"].as_str().unwrap_or_default(), None);
                    self.replicas[at].tasks.push(Task::Call { call, input });
                }
                work => self.breaks(format!("not the gateway's to make: {work:?}")),
            },
            Effect::StopCall { call } => {
                let keeps = self.random.percent(50);
                let its = |task: &Task| matches!(task, Task::Call { call: c, .. } if *c == call);
                self.replicas[at].tasks.retain(|task| keeps || !its(task));
            }
            Effect::Pack { handoff, last_seq } => {
                let handoff = Box::new(handoff);
                self.replicas[at].tasks.push(Task::Pack { handoff, last_seq });
            }
            Effect::DeviceTook(_) | Effect::End => {}
        }
    }

    /// Executes a tool call, in a task or on the device of a client.
    pub(super) fn runs_call(&mut self, tool: &str, call: &str, device: Option<usize>) {
        let tool = tools::named(tool);
        if self.ran.contains_key(call) {
            self.tally.add("calls made again");
        }
        self.tally.add(if device.is_some() { "calls of devices" } else { "calls of tasks" });
        self.say(|| format!("the call {call} of {} runs at {device:?}", tool.name));
        let granted = self.store.past.granted.contains(tool.name);
        if granted && !self.store.past.is_used(call) {
            self.tally.add("calls allowed for good");
        } else if tool.asks && !self.store.past.is_used(call) {
            self.breaks(format!("{call} of {} runs without permission", tool.name));
        }
        let times = self.ran.entry(call.to_owned()).or_default();
        *times += 1;
        if *times > 1 && !tool.again {
            self.breaks(format!("{call} of {} runs twice", tool.name));
        }
    }

    /// Checks that a reply only claims what is stored.
    fn check_reply(&mut self, serial: u64, request: usize, reply: &Reply) {
        let past = &self.store.past;
        let is_owner = past.writers.values().next_back() == Some(&serial);
        let rows = self.store.rows.as_ref().filter(|_| is_owner);
        let command = &self.requests[request].command;
        let is_true = match (command, reply) {
            (_, Reply::Accepted { turn }) => past.accepted.contains_key(turn),
            (_, Reply::Ended { turn, outcome }) => match &**outcome {
                Ok(done) => {
                    let seq = usize::try_from(done.info.seq.unwrap_or_default()).unwrap();
                    let entry = past.log.get(seq.wrapping_sub(1));
                    past.ended.contains(turn) && entry.is_some_and(|entry| entry.turn_id == *turn)
                }
                Err(_) => past.ended.contains(turn) || past.forgotten.contains(turn),
            },
            (_, Reply::Attached(attached)) => past.epochs.contains(&attached.epoch),
            (_, Reply::Decided(Some(approval))) => {
                let states = past.approvals.get(&approval.approval_id);
                states.is_some_and(|states| states.contains(&approval.state))
            }
            (Command::Confirmed { epoch, seq }, Reply::Done) => rows.is_none_or(|rows| {
                let attached = rows.attachments.iter().any(|row| row.epoch == *epoch);
                !attached || *seq > rows.head.last_seq || *seq <= rows.head.delivered_seq
            }),
            (Command::Device(DeviceChange::Token { hash, .. }), Reply::Done) => {
                past.tokens.contains(hash)
            }
            (Command::HandOff(_), Reply::Done) => past.handed_off,
            (Command::Delete, Reply::Done) => past.deleted,
            // A retry of the same handoff is not refused.
            (Command::HandOff(own), Reply::Refused(Refusal::HandedOver(successor))) => {
                past.handed_off && own.id != *successor
            }
            (_, Reply::Refused(Refusal::HandedOver(_))) => past.handed_off,
            (_, Reply::Refused(Refusal::NoSession)) => past.deleted,
            _ => true,
        };
        if !is_true {
            let why = format!("told before it was stored: {command:?} is answered {reply:?}");
            self.breaks(why);
        }
    }
}
