//! Tool calls: approved if needed, sent to a device or a task, ended exactly once (G9).
//!
//! ```text
//! LeftOpen → Asking → Device | Task → done     (no permission needed: begins at Device or Task;
//!                                               LeftOpen only if its owner stopped, see restart.rs)
//! ```
//!
//! Invariant: a call that needs approval is made only after it is approved; the approval is marked as
//! used in a commit before the call is made.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use uuid::Uuid;

use super::approvals::{Question, no};
use super::device_calls::LastDevice;
use super::permissions::Permitted;
use super::{Machine, Step};
use crate::approval::{ApprovalState, ApprovalStep};
use crate::id::{ApprovalId, Seq, TurnId};
use crate::message::EntryKind;
use crate::session::effect::{Effect, Refusal, Reply};
use crate::session::input::{CommandId, Now};
use crate::session::log::NewEntry;
use crate::session::open_call::Consent;
use crate::session::row::SnapshotKind;
use crate::session::turn::{CALL_INTERRUPTED, Permission, PlannedCall, Work};
use crate::tool_result::content;

pub(super) const WENT_AWAY: &str = "the device disconnected before it answered";
const CANCELLED: &str = "the turn was cancelled";

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) plan: Arc<PlannedCall>,
    pub(super) of: CallOf,
    pub(super) state: CallState,
    pub(super) begun: Instant,
    /// What allows it to be made.
    pub(super) consent: Consent,
}

/// Who gets the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallOf {
    Turn(TurnId),
    Command(CommandId),
    /// Its caller was told that it is left open, and asks again.
    Nobody,
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
    /// Not begun, because this owner stops; or because the last one did, and who has to be there is not
    /// back yet. Then until `until`, if the call is in the log entry at `seq`.
    LeftOpen {
        seq: Seq,
        until: Option<Instant>,
    },
}

impl Call {
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            CallState::Device { target: Some(_), deadline, .. } => Some(*deadline),
            CallState::Device { deadline, wait_until, .. } => Some(*deadline.min(wait_until)),
            CallState::LeftOpen { until, .. } => *until,
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
            CallOf::Turn(_) | CallOf::Nobody => None,
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
        self.calls_begun(turn, now, step);
    }

    pub(super) fn calls_begun(&mut self, turn: TurnId, now: Now, step: &mut Step) {
        self.calls_done(turn, now, step);
        // The turn was cancelled before its calls began.
        if self.front(turn).is_some_and(|turn| turn.cancelled) {
            self.cancel_calls(turn, now, step);
        }
        if self.stopping {
            self.leave_calls_open(now, step);
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

    pub(super) fn begin_call(
        &mut self,
        of: CallOf,
        seq: Seq,
        plan: PlannedCall,
        now: Now,
        step: &mut Step,
    ) {
        let (begun, plan) = (now.instant, Arc::new(plan));
        let mut call = Call { state: CallState::Task, of, begun, plan, consent: Consent::Rule };
        if self.stopping && call.plan.needs_somebody() && !call.plan.may_be_used() {
            let state = CallState::LeftOpen { seq, until: None };
            return self.calls.push(Call { state, ..call });
        }
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
                    CallOf::Command(_) | CallOf::Nobody => None,
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
            // Nobody has come back: that is its result.
            if let CallState::LeftOpen { seq, .. } = call.state {
                self.begin_call(call.of, seq, PlannedCall::clone(&call.plan), now, step);
                continue;
            }
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
            CallState::Device { .. } | CallState::LeftOpen { .. } => {}
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
            CallOf::Nobody => return,
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
