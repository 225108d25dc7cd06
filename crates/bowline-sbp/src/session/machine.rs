//! The state machine of a session: turns an input and the time into writes and effects.
//!
//! Pure, and `Clone`: if a commit fails, the actor rolls back to a clone. The states of a turn:
//!
//! ```text
//! Waiting → Running ⇄ Acting{calls} → ended      (Replanning → Acting | Running after a restart)
//! ```
//!
//! Invariants
//! - Turns run one at a time, in the order in which they were accepted (SBP-L2-18).
//! - Log positions are assigned here and nowhere else, contiguous (G1).
//! - An accepted turn always ends: with an answer, a note, or an error to its caller (G2, G18).

mod approvals;
mod calls;
mod device_calls;
mod handoff;
mod load;
mod permissions;
mod restart;
mod submit;
mod surfaces;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use self::approvals::{PersonsDecision, Question};
use self::calls::Call;
use self::surfaces::Surface;
use self::turns::{Item, Turn, TurnState};
use super::commit::Write;
use super::effect::{Effect, Refusal, Reply};
use super::input::{Command, CommandId, Fact, Input, KnownKey, Now};
use super::live::{Closed, LiveState};
use super::log::{NewEntry, Placed};
use super::request::TurnRequest;
use super::row::{DeviceRow, GrantRow, Head, NewSession, Snapshot, SnapshotKind};
use super::turn::Outcome;
use crate::id::{AgentId, SessionId, SnapshotId, TurnId, UserId};
use crate::lifecycle::{Change, Status};
use crate::message::EntryKind;

/// How many ended turns are kept in memory with their outcome.
const RECENT: usize = 16;

/// Bounds of a session (G9, G11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Turns that may wait for the running one.
    pub waiting_turns: usize,
    /// Attached surfaces.
    pub surfaces: usize,
    /// Tool calls in flight on one surface, and pending approvals of the session.
    pub calls: usize,
    /// Runs of one turn; a turn is run again after a crash (SBP-L2-13).
    pub attempts: u32,
    /// The images of one tool result that are kept, in bytes.
    pub images: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { waiting_turns: 64, surfaces: 64, calls: 64, attempts: 2, images: 5 << 20 }
    }
}

/// What to commit, and what to do after the commit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    pub writes: Vec<Write>,
    pub effects: Vec<Effect>,
}

impl Step {
    fn write(&mut self, write: Write) {
        self.writes.push(write);
    }

    fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn reply(&mut self, to: CommandId, reply: Reply) {
        self.effects.push(Effect::Reply { to, reply });
    }

    fn refuse(&mut self, to: CommandId, refusal: Refusal) {
        self.reply(to, Reply::Refused(refusal));
    }
}

/// A live session.
#[derive(Debug, Clone)]
pub struct Machine {
    id: SessionId,
    user: UserId,
    agent_id: AgentId,
    limits: SessionLimits,
    head: Head,
    /// Turns and handoffs in order; only the front one runs.
    queue: VecDeque<Item>,
    /// Recently ended turns.
    recent: VecDeque<(TurnId, Arc<Outcome>)>,
    surfaces: Vec<Surface>,
    closed: VecDeque<(u64, Closed)>,
    devices: Arc<Vec<DeviceRow>>,
    calls: Vec<Call>,
    /// Results of open calls that came before their turn was planned again.
    early_results: Vec<(Uuid, Result<Value, String>)>,
    /// Results of calls that were left open, and whose callers have not asked again.
    left_results: Vec<(Uuid, Result<Value, String>)>,
    asked: Vec<Question>,
    grants: Vec<GrantRow>,
    stopping: bool,
    gone: bool,
    /// The next turn creates the session.
    making: bool,
    /// Another gateway takes the session away: by which reservation, and until when nothing is accepted.
    held: Option<(Uuid, Timestamp)>,
}

impl Machine {
    /// A session that its first turn will create.
    pub fn make(new: &NewSession, limits: SessionLimits) -> Self {
        let head = Head::new(Status::Idle, new.at);
        Self { making: true, ..Self::empty(new.id, new.user, new.agent_id.clone(), head, limits) }
    }

    fn empty(
        id: SessionId,
        user: UserId,
        agent_id: AgentId,
        head: Head,
        limits: SessionLimits,
    ) -> Self {
        Self {
            id,
            user,
            agent_id,
            limits,
            head,
            queue: VecDeque::new(),
            recent: VecDeque::new(),
            surfaces: Vec::new(),
            closed: VecDeque::new(),
            devices: Arc::default(),
            calls: Vec::new(),
            early_results: Vec::new(),
            left_results: Vec::new(),
            asked: Vec::new(),
            grants: Vec::new(),
            stopping: false,
            gone: false,
            making: false,
            held: None,
        }
    }

    /// Handles an input. The writes must be committed before the effects are carried out.
    pub fn handle(&mut self, input: Input, now: Now) -> Step {
        let mut step = Step::default();
        match input {
            Input::Command { id, command, known } => {
                self.command(id, *command, known, now, &mut step);
            }
            Input::Fact(fact) => self.fact(fact, now, &mut step),
        }
        step
    }

    fn command(
        &mut self,
        id: CommandId,
        command: Command,
        known: Option<KnownKey>,
        now: Now,
        step: &mut Step,
    ) {
        if self.gone {
            return step.refuse(id, Refusal::NoSession);
        }
        match command {
            Command::Submit(submit) => self.submit(id, submit, known, now, step),
            Command::Join { turn } => {
                let live = self.queue.iter().filter_map(Item::turn).any(|live| live.id == turn);
                self.join(id, turn, !live, step);
            }
            Command::Await { turn } => self.wait_for(id, turn, step),
            Command::Cancel { turns, running } => {
                let turns = self.cancel(&turns, running, now, step);
                step.reply(id, Reply::Cancelled { turns });
            }
            Command::Attach(attach) => match self.attach(attach, now, step) {
                Ok(attached) => step.reply(id, Reply::Attached(Box::new(attached))),
                Err(refusal) => step.refuse(id, refusal),
            },
            Command::Confirmed { epoch, seq } => {
                self.confirmed(epoch, seq, step);
                step.reply(id, Reply::Done);
            }
            Command::ToolResult { epoch, call, result } => {
                self.tool_result(epoch, call, result, now, step);
                step.reply(id, Reply::Done);
            }
            Command::Decide { approval, approved, always, by } => {
                let verdict = PersonsDecision { approved, always, by };
                match self.decide(approval, verdict, now, step) {
                    Ok(stands) => step.reply(id, Reply::Decided(stands.map(Box::new))),
                    Err(refusal) => step.refuse(id, refusal),
                }
            }
            Command::CallDevice { call } => self.call_device(id, *call, now, step),
            Command::ResumeCall { call, sent } => {
                self.resume_device_call(id, *call, *sent, now, step);
            }
            Command::GiveUpCall { call } => {
                self.give_up_call(call, now, step);
                step.reply(id, Reply::Done);
            }
            Command::SetStatus(change) => match self.set_status(change, now) {
                Ok(()) => step.reply(id, Reply::Done),
                Err(refusal) => step.refuse(id, refusal),
            },
            Command::SetTitle(title) => {
                // Naming a session is no activity in it: `updated_at` stays.
                self.head.titles.given = title;
                step.reply(id, Reply::Done);
            }
            Command::Device(change) => match self.change_device(change, now, step) {
                Ok(()) => step.reply(id, Reply::Done),
                Err(refusal) => step.refuse(id, refusal),
            },
            Command::HandOff(handoff) => self.hand_off(id, handoff, known, now, step),
            Command::Hold { by, until } => {
                // One that another gateway has reserved stays reserved for that one.
                if self.held_until(now).is_none() || self.held.is_some_and(|(held, _)| held == by) {
                    self.held = Some((by, until));
                }
                step.reply(id, Reply::Done);
            }
            Command::EndHold { by } => {
                self.held.take_if(|(held, _)| *held == by);
                step.reply(id, Reply::Done);
            }
            Command::Delete => self.delete(id, step),
        }
    }

    fn fact(&mut self, fact: Fact, now: Now, step: &mut Step) {
        if self.gone {
            return;
        }
        match fact {
            Fact::RoundEnded { turn, attempt, round, end } => {
                self.round_ended(turn, attempt, round, end, now, step);
            }
            Fact::Replanned { turn, attempt, plan } => {
                self.replanned(turn, attempt, plan, now, step);
            }
            Fact::CallEnded { call, result } => self.task_ended(call, result, now, step),
            Fact::ToolResult { epoch, call, result } => {
                self.tool_result(epoch, call, result, now, step);
            }
            Fact::SurfaceGone { epoch, restarts } => {
                self.surface_gone(epoch, restarts, now, step);
            }
            Fact::Packed { id, last_seq, packed } => self.packed(id, last_seq, packed, now, step),
            Fact::StoreBusy => self.release_waiters(step),
            Fact::Stop => self.stop(now, step),
            Fact::Deadline => self.deadline_passed(now, step),
        }
    }

    /// When [`Fact::Deadline`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        let calls = self.calls.iter().filter_map(Call::deadline);
        calls.chain(self.asked.iter().filter_map(Question::deadline)).min()
    }

    /// No turns, no surfaces, no calls: the session can be unloaded.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.surfaces.is_empty() && self.calls.is_empty()
    }

    /// No round, replan, handoff or task is running: the drain need not wait for this session.
    pub fn is_quiet(&self) -> bool {
        let runs = self.queue.front().is_some_and(Item::runs);
        !runs && !self.calls.iter().any(Call::is_task)
    }

    pub fn is_gone(&self) -> bool {
        self.gone
    }

    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whose session it is.
    pub fn user(&self) -> UserId {
        self.user
    }

    pub fn agent_id(&self) -> &AgentId {
        &self.agent_id
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The number of turns and handoffs that run or wait.
    pub fn turns(&self) -> usize {
        self.queue.len()
    }

    /// Refuses the commands that wait for a turn: its end cannot be committed now.
    pub(super) fn release_waiters(&mut self, step: &mut Step) {
        for item in &mut self.queue {
            if let Item::Turn(turn) = item {
                let waiters = std::mem::take(&mut turn.waiters);
                waiters.into_iter().for_each(|to| step.refuse(to, Refusal::NotStored));
            }
        }
    }

    /// A turn's request, and whether its messages are in the log already.
    pub fn request(&self, turn: TurnId) -> Option<(Arc<TurnRequest>, bool)> {
        let turn = self.queue.iter().filter_map(Item::turn).find(|known| known.id == turn)?;
        Some((Arc::clone(&turn.request), turn.advanced))
    }

    /// Until when no turn is accepted because another gateway takes the session away.
    fn held_until(&self, now: Now) -> Option<Timestamp> {
        self.held.map(|(_, until)| until).filter(|until| *until > now.at)
    }

    /// How a turn ended, if it ended lately.
    pub fn outcome(&self, turn: TurnId) -> Option<Arc<Outcome>> {
        let ended = self.recent.iter().find(|(recent, _)| *recent == turn)?;
        Some(Arc::clone(&ended.1))
    }

    /// The observable state, for watchers.
    pub fn live(&self) -> LiveState {
        LiveState {
            user: self.user,
            status: self.head.status,
            head: self.head.last_seq,
            step_count: self.head.step_count,
            gone: self.gone,
            handed_to: self.head.handed_to.clone(),
            turns: self.queue.iter().filter_map(Item::turn).map(Turn::live).collect(),
            surfaces: self.surfaces.iter().map(Surface::live).collect(),
            closed: self.closed.iter().copied().collect(),
            calls: self.calls.iter().filter_map(Call::live).collect(),
            approvals: self.asked.iter().map(Question::live).collect(),
        }
    }

    /// Appends entries to the log. `advances`: the turn continues after them.
    fn append(
        &mut self,
        turn_id: TurnId,
        entries: Vec<NewEntry>,
        advances: bool,
        now: Now,
        step: &mut Step,
    ) {
        let head = &mut self.head;
        let place = |entry: NewEntry| {
            head.titles.see(entry.kind, &entry.message);
            head.last_seq += 1;
            head.step_count += u64::from(entry.kind == EntryKind::Turn);
            head.tethered_turns += u64::from(entry.tethered);
            head.cost_usd += entry.cost_usd;
            head.spent_usd += entry.cost_usd;
            Placed {
                seq: head.last_seq,
                turn_id,
                step: head.step_count,
                tether_no: entry.tethered.then_some(head.tethered_turns),
                at: now.at,
                entry,
            }
        };
        let placed: Vec<_> = entries.into_iter().map(place).collect();
        self.head.updated_at = now.at;
        let advances = advances.then_some(turn_id);
        match step.writes.last_mut() {
            Some(Write::Append { entries, advances: same }) if *same == advances => {
                entries.extend(placed);
            }
            _ => step.write(Write::Append { entries: placed, advances }),
        }
    }

    fn take_snapshot(&mut self, kind: SnapshotKind, now: Now) {
        let seq = self.head.last_seq;
        self.head.snapshot = Some(Snapshot { id: SnapshotId(now.fresh), kind, seq, at: now.at });
    }

    fn set_status(&mut self, change: Change, now: Now) -> Result<(), Refusal> {
        let status = self.head.status.after(change).map_err(Refusal::Illegal)?;
        if let (Status::Running, Some((successor, _))) = (status, &self.head.handed_to) {
            return Err(Refusal::HandedOver(*successor));
        }
        self.head.status = status;
        self.head.updated_at = now.at;
        Ok(())
    }

    /// Like [`Machine::set_status`], for internal changes: one that is not allowed is ignored.
    fn move_on(&mut self, change: Change, now: Now) {
        if let Ok(status) = self.head.status.after(change) {
            self.head.status = status;
            self.head.updated_at = now.at;
        }
    }

    fn delete(&mut self, id: CommandId, step: &mut Step) {
        self.vanish(step);
        step.reply(id, Reply::Done);
        step.effect(Effect::End);
    }

    /// Deletes the session and everything in it; waiting commands are refused.
    fn vanish(&mut self, step: &mut Step) {
        self.gone = true;
        step.write(Write::Delete);
        for item in std::mem::take(&mut self.queue) {
            match item {
                Item::HandOff { waiters, .. } => {
                    waiters.into_iter().for_each(|to| step.refuse(to, Refusal::NoSession));
                }
                Item::Turn(turn) => {
                    if turn.runs() {
                        step.effect(Effect::StopRound { turn: turn.id });
                    }
                    let refuse = |to| step.refuse(to, Refusal::NoSession);
                    turn.waiters.into_iter().for_each(refuse);
                }
            }
        }
        for call in std::mem::take(&mut self.calls) {
            call.abandoned(step);
        }
        self.surfaces.clear();
        self.asked.clear();
    }

    /// The turn at the front of the queue, if it is this one.
    fn front(&mut self, turn: TurnId) -> Option<&mut Turn> {
        match self.queue.front_mut() {
            Some(Item::Turn(front)) if front.id == turn => Some(front),
            _ => None,
        }
    }

    fn acting(&mut self, turn: TurnId) -> Option<&mut Turn> {
        self.front(turn).filter(|turn| matches!(turn.state, TurnState::Acting { .. }))
    }
}
