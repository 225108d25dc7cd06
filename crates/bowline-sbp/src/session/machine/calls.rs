//! Tool calls: approved if needed, sent to a device or a task, ended exactly once (G9).
//!
//! ```text
//! Asking → Device | Task → done          (no permission needed: begins at Device or Task)
//! ```
//!
//! Invariants
//! - A call that needs approval is made only after it is approved; the approval is marked as used
//!   in a commit before the call is made.
//! - Only a call that was sent to an attached surface can be answered, and only once (SBP-L5-04).
//! - A call that was sent is resent only to the same device, under the same id: another device must
//!   not repeat what the first may have done. A surface without a `surface_id` counts as the same
//!   device if it replaced the first or attached after it left; one attached beside it does not.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use uuid::Uuid;

use super::approvals::{Question, no};
use super::permissions::{Consent, Permitted};
use super::surfaces::Surface;
use super::{Machine, Step};
use crate::approval::{ApprovalState, ApprovalStep};
use crate::id::{ApprovalId, Seq, TurnId};
use crate::message::EntryKind;
use crate::session::effect::{Effect, Refusal, Reply};
use crate::session::input::{CommandId, Now};
use crate::session::live::DeviceCall;
use crate::session::log::NewEntry;
use crate::session::row::SnapshotKind;
use crate::session::turn::{CALL_INTERRUPTED, Permission, PlannedCall, Replanned, Work};
use crate::surface::SurfaceTool;
use crate::tool_result::content;

/// The largest tool result of a device, in bytes.
const LARGEST_RESULT: usize = 1 << 20;

pub(super) const WENT_AWAY: &str = "the device disconnected before it answered";
const CANCELLED: &str = "the turn was cancelled";

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) plan: Arc<PlannedCall>,
    pub(super) of: CallOf,
    pub(super) state: CallState,
    begun: Instant,
    /// What allows it to be made.
    consent: Consent,
}

/// Who gets the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallOf {
    Turn(TurnId),
    Command(CommandId),
}

#[derive(Debug, Clone)]
pub(super) enum CallState {
    Asking(ApprovalId),
    Device {
        input: Arc<Value>,
        /// The epoch it was sent to; none while it waits for a device.
        target: Option<u64>,
        /// The disconnected device it was sent to before, if any.
        last: Option<LastDevice>,
        deadline: Instant,
        /// When to stop waiting for a device to come back.
        wait_until: Instant,
    },
    Task,
}

/// A device that disconnected while it had a call.
#[derive(Debug, Clone)]
pub(super) struct LastDevice {
    name: Option<String>,
    /// The device can only come back with an epoch greater than this.
    older: u64,
}

impl LastDevice {
    fn is(&self, epoch: u64, name: Option<&str>) -> bool {
        epoch > self.older && name == self.name.as_deref()
    }
}

impl Call {
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            CallState::Device { target: Some(_), deadline, .. } => Some(*deadline),
            CallState::Device { deadline, wait_until, .. } => Some(*deadline.min(wait_until)),
            CallState::Asking(_) | CallState::Task => None,
        }
    }

    pub(super) fn is_task(&self) -> bool {
        matches!(self.state, CallState::Task)
    }

    /// The command that waits for it.
    pub(super) fn caller(&self) -> Option<CommandId> {
        match self.of {
            CallOf::Command(to) => Some(to),
            CallOf::Turn(_) => None,
        }
    }

    /// Ends the call because the session is deleted.
    pub(super) fn abandoned(self, step: &mut Step) {
        if self.is_task() {
            step.effect(Effect::StopCall { call: self.plan.id });
        }
        if let CallOf::Command(to) = self.of {
            step.refuse(to, Refusal::NoSession);
        }
    }

    pub(super) fn live(&self) -> Option<DeviceCall> {
        let CallState::Device { input, target: Some(epoch), deadline, .. } = &self.state else {
            return None;
        };
        let Work::Device { tool, .. } = &self.plan.work else { return None };
        Some(DeviceCall {
            call: self.plan.id,
            epoch: *epoch,
            tool: tool.clone(),
            input: Arc::clone(input),
            deadline: Some(*deadline),
        })
    }

    fn is_at(&self, epoch: u64) -> bool {
        matches!(self.state, CallState::Device { target: Some(target), .. } if target == epoch)
    }
}

impl Machine {
    /// Begins the calls of a turn; the entry that holds them is at `seq`.
    pub(super) fn begin_calls(
        &mut self,
        turn: TurnId,
        seq: Seq,
        calls: Vec<PlannedCall>,
        now: Now,
        step: &mut Step,
    ) {
        for plan in calls {
            self.begin_call(CallOf::Turn(turn), seq, plan, now, step);
        }
        self.calls_done(turn, now, step);
        // The turn was cancelled before its calls began.
        if self.front(turn).is_some_and(|turn| turn.cancelled) {
            self.cancel_calls(turn, now, step);
        }
    }

    /// Continues a turn after a crash with the calls that have no result.
    pub(super) fn replanned(
        &mut self,
        id: TurnId,
        attempt: u32,
        plan: Result<Replanned, crate::error::Failure>,
        now: Now,
        step: &mut Step,
    ) {
        use super::turns::{Item, TurnState};
        use crate::frame::TurnStatus;
        let Some(turn) = self.front(id) else { return };
        if turn.attempt != attempt || !matches!(turn.state, TurnState::Replanning) {
            return;
        }
        let is_used_up =
            matches!(self.queue.front(), Some(Item::Turn(turn)) if self.is_used_up(turn));
        let Some(turn) = self.front(id) else { return };
        match plan {
            Ok(Replanned { calls, .. }) if is_used_up => {
                self.calls_given_up(id, &calls, now, step);
                self.give_up_interrupted(now, step);
                self.start_next(now, step);
            }
            Ok(Replanned { seq, calls, rounds, spent_usd }) => {
                (turn.rounds, turn.spent_usd) = (rounds, spent_usd);
                turn.state = TurnState::Acting { open: calls.len(), then: None };
                self.begin_calls(id, seq, calls, now, step);
            }
            Err(failure) => {
                if let Some(Item::Turn(turn)) = self.queue.pop_front() {
                    let note = format!("This was not answered: {failure}. Send it again.");
                    self.give_up_unrun(*turn, failure, &note, TurnStatus::Failed, now, step);
                }
                self.start_next(now, step);
            }
        }
    }

    /// Logs the end of calls whose turn is given up: every call has one (G9).
    fn calls_given_up(&mut self, turn: TurnId, calls: &[PlannedCall], now: Now, step: &mut Step) {
        let interrupted = || content(Err(CALL_INTERRUPTED.into()), self.limits.images);
        let result = |plan: &PlannedCall| {
            NewEntry::with_blobs(EntryKind::Action, plan.call.result_of(interrupted()))
        };
        let results: Vec<_> = calls.iter().map(result).collect();
        if !results.is_empty() {
            self.append(turn, results, true, now, step);
        }
    }

    pub(super) fn call_device(
        &mut self,
        to: CommandId,
        call: PlannedCall,
        now: Now,
        step: &mut Step,
    ) {
        if self.stopping {
            return step.refuse(to, Refusal::Stopping);
        }
        // A retried call: the newest command gets the result.
        if let Some(known) = self.calls.iter_mut().find(|known| known.plan.id == call.id) {
            known.of = CallOf::Command(to);
            return;
        }
        self.begin_call(CallOf::Command(to), 0, call, now, step);
    }

    fn begin_call(&mut self, of: CallOf, seq: Seq, plan: PlannedCall, now: Now, step: &mut Step) {
        let (begun, plan) = (now.instant, Arc::new(plan));
        let mut call = Call { state: CallState::Task, of, begun, plan, consent: Consent::Rule };
        let Some(permission) = call.plan.permission.clone() else {
            return self.make_call(call, now, step);
        };
        let (turn, place) = (permission.approval.turn_id, (seq, call.plan.n));
        let known = self.asked.iter().find(|asked| asked.place == place && asked.is_of(turn));
        let (stands, shown) = match known {
            Some(known) => (known.live(), known.shown.clone()),
            // It was allowed without a question, and may have run.
            None if permission.replanned && !call.plan.again => {
                return self.call_done(call, Err(CALL_INTERRUPTED.into()), now, step);
            }
            None => match self.permitted(&call, &permission) {
                Permitted::Now(consent) => {
                    return self.make_call(Call { consent, ..call }, now, step);
                }
                Permitted::No(why) => return self.call_done(call, Err(why), now, step),
                Permitted::Ask(ask) => {
                    let (permission, shown) = *ask;
                    match self.ask(permission.approval, place, shown.clone(), now, step) {
                        Ok(asked) => (asked, shown),
                        Err(why) => return self.call_done(call, Err(why.into()), now, step),
                    }
                }
            },
        };
        call.consent = Consent::Person(shown);
        match stands.state {
            ApprovalState::Used if call.plan.again => self.make_call(call, now, step),
            ApprovalState::Used => self.call_done(call, Err(CALL_INTERRUPTED.into()), now, step),
            ApprovalState::Pending | ApprovalState::Approved => {
                let state = CallState::Asking(stands.approval_id);
                self.calls.push(Call { state, ..call });
                self.use_approval(stands.approval_id, now, step);
            }
            refused => self.call_done(call, Err(no(refused).into()), now, step),
        }
    }

    pub(super) fn make_call(&mut self, mut call: Call, now: Now, step: &mut Step) {
        call.begun = now.instant;
        match &call.plan.work {
            Work::Known(result) => {
                let result = result.clone();
                self.call_done(call, result, now, step);
            }
            Work::Task { .. } => {
                let turn = match call.of {
                    CallOf::Turn(turn) => Some(turn),
                    CallOf::Command(_) => None,
                };
                let work = call.plan.work.clone();
                let definition = match &call.consent {
                    Consent::Person(shown) => Some(shown.definition.clone()),
                    Consent::Rule | Consent::DeviceAsks => None,
                };
                step.effect(Effect::RunCall { call: call.plan.id, turn, work, definition });
                self.calls.push(Call { state: CallState::Task, ..call });
            }
            Work::Device { input, patience, wait, .. } => {
                // Where the device asks its user, the call takes as long as a person may.
                let asks = match call.consent {
                    Consent::DeviceAsks => call.plan.permission.as_ref().map(Permission::time),
                    Consent::Rule | Consent::Person(_) => None,
                };
                let state = CallState::Device {
                    input: Arc::new(input.clone()),
                    target: None,
                    last: None,
                    deadline: now.instant + *patience + asks.unwrap_or_default(),
                    wait_until: now.instant + *wait,
                };
                self.send_to_device(Call { state, ..call }, now, step);
            }
        }
    }

    /// Finds a device for a call: the newest with the tool. A call that was sent before waits for
    /// the same device.
    fn send_to_device(&mut self, mut call: Call, now: Now, step: &mut Step) {
        let Work::Device { tool, wait, .. } = &call.plan.work else { return };
        let CallState::Device { target, last, .. } = &mut call.state else { return };
        let fits = |surface: &Surface, tool: &SurfaceTool| {
            last.as_ref().is_none_or(|last| last.is(surface.epoch, surface.device()))
                && call.consent.covers(surface, tool, &self.surfaces)
        };
        let found = self.surface_with(tool, fits);
        let busy = |epoch| self.calls.iter().filter(|call| call.is_at(epoch)).count();
        match found {
            Some(epoch) if busy(epoch) >= self.limits.calls => {
                let most = self.limits.calls;
                let why = format!("the device already has {most} calls in flight");
                self.call_done(call, Err(why), now, step);
            }
            Some(epoch) => {
                *target = Some(epoch);
                self.calls.push(call);
            }
            None if wait.is_zero() => self.call_done(call, Err(WENT_AWAY.into()), now, step),
            None => self.calls.push(call),
        }
    }

    /// An attachment ended: its calls wait for the same device, or end. `replaced`: by the newest
    /// attachment.
    pub(super) fn calls_lost(
        &mut self,
        epoch: u64,
        device: Option<&str>,
        replaced: bool,
        now: Now,
        step: &mut Step,
    ) {
        // Left to the next process, which repeats them or reports them as interrupted.
        if self.stopping {
            return;
        }
        let older = self.head.attach_epoch - u64::from(replaced);
        for mut call in self.calls.extract_if(.., |call| call.is_at(epoch)).collect::<Vec<_>>() {
            let Work::Device { wait, .. } = &call.plan.work else { continue };
            let until = now.instant + *wait;
            if let CallState::Device { target, last, wait_until, .. } = &mut call.state {
                *target = None;
                *last = Some(LastDevice { name: device.map(str::to_owned), older });
                *wait_until = until;
            }
            self.send_to_device(call, now, step);
        }
    }

    /// A surface attached: sends the calls that wait for it.
    pub(super) fn calls_for_new_surface(&mut self, now: Now, step: &mut Step) {
        let waits = |call: &mut Call| matches!(call.state, CallState::Device { target: None, .. });
        for call in self.calls.extract_if(.., waits).collect::<Vec<_>>() {
            self.send_to_device(call, now, step);
        }
    }

    /// A device's tool result. It counts only from the attachment that has the call, or from
    /// another attachment of the device with the same `surface_id`.
    pub(super) fn tool_result(
        &mut self,
        epoch: u64,
        id: Uuid,
        result: Result<Value, String>,
        now: Now,
        step: &mut Step,
    ) {
        let Some(at) = self.calls.iter().position(|call| call.plan.id == id) else { return };
        let CallState::Device { target, last, .. } = &self.calls[at].state else { return };
        let of = target.and_then(|target| self.device_at(target));
        let of = of.or_else(|| last.as_ref().and_then(|last| last.name.clone()));
        let same = || of.is_some() && self.device_at(epoch) == of;
        if *target != Some(epoch) && !same() {
            return;
        }
        let call = self.calls.remove(at);
        let size = match &result {
            Ok(value) => value.to_string().len(),
            Err(why) => why.len(),
        };
        let result = match size > LARGEST_RESULT {
            true => Err(format!("the device's answer is over {LARGEST_RESULT} bytes")),
            false => result,
        };
        self.call_done(call, result, now, step);
    }

    /// The result of a call that a task made.
    pub(super) fn task_ended(
        &mut self,
        id: Uuid,
        result: Result<Value, String>,
        now: Now,
        step: &mut Step,
    ) {
        let at = self.calls.iter().position(|call| call.plan.id == id && call.is_task());
        if let Some(at) = at {
            let call = self.calls.remove(at);
            self.call_done(call, result, now, step);
        }
    }

    pub(super) fn deadline_passed(&mut self, now: Now, step: &mut Step) {
        let due = |call: &mut Call| call.deadline().is_some_and(|at| at <= now.instant);
        for call in self.calls.extract_if(.., due).collect::<Vec<_>>() {
            let Work::Device { patience, .. } = &call.plan.work else { continue };
            let late = format!("the device did not answer within {} s", patience.as_secs());
            let away = matches!(&call.state, CallState::Device { target: None, .. });
            let why = if away { WENT_AWAY.to_owned() } else { late };
            self.call_done(call, Err(why), now, step);
        }
        let due = |asked: &Question| asked.deadline().is_some_and(|at| at <= now.instant);
        let expired: Vec<_> =
            self.asked.iter().filter(|asked| due(asked)).map(|a| a.approval.approval_id).collect();
        for id in expired {
            let _ = self.step_approval(id, ApprovalStep::Expire, None, now, step);
            self.use_approval(id, now, step);
        }
    }

    /// Ends the calls of a cancelled turn.
    pub(super) fn cancel_calls(&mut self, turn: TurnId, now: Now, step: &mut Step) {
        let its = |call: &mut Call| call.of == CallOf::Turn(turn);
        for call in self.calls.extract_if(.., its).collect::<Vec<_>>() {
            self.stop_call(call, CANCELLED, now, step);
        }
    }

    /// The caller of a device call without a turn no longer waits for the result.
    pub(super) fn give_up_call(&mut self, id: Uuid, now: Now, step: &mut Step) {
        let its = |call: &Call| call.plan.id == id && call.caller().is_some();
        if let Some(at) = self.calls.iter().position(its) {
            let call = self.calls.remove(at);
            self.stop_call(call, "the caller no longer waits for the result", now, step);
        }
    }

    fn stop_call(&mut self, call: Call, why: &str, now: Now, step: &mut Step) {
        match call.state {
            CallState::Asking(id) => {
                let _ = self.step_approval(id, ApprovalStep::Deny, None, now, step);
            }
            CallState::Task => step.effect(Effect::StopCall { call: call.plan.id }),
            CallState::Device { .. } => {}
        }
        self.call_done(call, Err(why.into()), now, step);
    }

    /// Drops the calls of a turn that has ended.
    pub(super) fn calls_of_ended(&mut self, turn: TurnId, step: &mut Step) {
        let its = |call: &mut Call| call.of == CallOf::Turn(turn);
        for call in self.calls.extract_if(.., its) {
            if call.is_task() {
                step.effect(Effect::StopCall { call: call.plan.id });
            }
        }
    }

    pub(super) fn call_done(
        &mut self,
        call: Call,
        result: Result<Value, String>,
        now: Now,
        step: &mut Step,
    ) {
        if matches!(call.state, CallState::Device { .. }) {
            step.effect(Effect::DeviceTook(now.instant.saturating_duration_since(call.begun)));
        }
        let turn = match call.of {
            CallOf::Command(to) => return step.reply(to, Reply::Called(result)),
            CallOf::Turn(turn) => turn,
        };
        let message = call.plan.call.result_of(content(result, self.limits.images));
        self.append(turn, vec![NewEntry::with_blobs(EntryKind::Action, message)], true, now, step);
        self.take_snapshot(SnapshotKind::PostAction, now);
        if let Some(acting) = self.acting(turn)
            && let super::TurnState::Acting { open, .. } = &mut acting.state
        {
            *open = open.saturating_sub(1);
        }
        self.calls_done(turn, now, step);
    }
}
