//! From one owner to the next: what is left open at a stop in good order, and the turn that waits for tools
//! after a restart (G16, SBP-L2-13).
//!
//! Invariants
//! - A stop loses no call: a device that has one answers it to the next owner, under the same id.
//! - After a crash a call that may have been made is not made again, unless its tool is idempotent.
//! - What an owner left open is taken up once: the write that starts the turn again clears it.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use super::calls::{Call, CallOf, CallState};
use super::device_calls::LastDevice;
use super::turns::{Item, TurnState};
use super::{Machine, Step};
use crate::error::Failure;
use crate::frame::TurnStatus;
use crate::id::{Seq, TurnId};
use crate::message::EntryKind;
use crate::session::commit::Write;
use crate::session::effect::{Refusal, Reply};
use crate::session::input::Now;
use crate::session::log::NewEntry;
use crate::session::open_call::{Consent, OpenCall, SentCall};
use crate::session::turn::{CALL_INTERRUPTED, Permission, PlannedCall, Replanned, Work};
use crate::tool_result::content;

/// A device's result of a call that is not taken up yet.
#[derive(Debug, Clone)]
pub(super) struct EarlyResult {
    epoch: u64,
    call: Uuid,
    result: Result<Value, String>,
}

impl Machine {
    /// The gateway drains. Waiting turns and open calls are left to the next owner; commands that wait for
    /// them are refused, and ask there.
    pub(super) fn stop(&mut self, now: Now, step: &mut Step) {
        self.stopping = true;
        let mut told = Vec::new();
        for item in &mut self.queue {
            match item {
                Item::Turn(turn) if !turn.runs() => told.append(&mut turn.waiters),
                Item::HandOff { waiters, packing: None, .. } => told.append(waiters),
                Item::Turn(_) | Item::HandOff { .. } => {}
            }
        }
        self.queue.retain(|item| !matches!(item, Item::HandOff { packing: None, .. }));
        let (turns, callers): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.calls).into_iter().partition(|call| call.caller().is_none());
        self.calls = turns;
        for call in callers {
            let Some(to) = call.caller() else { continue };
            match self.sent(&call, now) {
                Some(sent) => step.reply(to, Reply::CallLeftOpen(Box::new(sent))),
                None => told.push(to),
            }
        }
        told.into_iter().for_each(|to| step.refuse(to, Refusal::Stopping));
        self.leave_calls_open(now, step);
    }

    /// Stores the open calls of the turn that waits for them. Also if there are none: the next owner knows by
    /// it that this one has not crashed.
    pub(super) fn leave_calls_open(&mut self, now: Now, step: &mut Step) {
        let Some(Item::Turn(turn)) = self.queue.front() else { return };
        if !matches!(turn.state, TurnState::Acting { .. }) {
            return;
        }
        let its = self.calls.iter().filter(|call| call.of == CallOf::Turn(turn.id));
        let open = its.filter_map(|call| {
            let sent = self.sent(call, now);
            let is_left = matches!(call.state, CallState::Device { .. } | CallState::LeftOpen);
            is_left.then_some(OpenCall { n: call.plan.n, sent })
        });
        let calls = open.collect();
        step.write(Write::LeaveOpen { turn: turn.id, calls });
    }

    /// A call that a device has, or had when it disconnected.
    fn sent(&self, call: &Call, now: Now) -> Option<SentCall> {
        let CallState::Device { target, last, deadline, .. } = &call.state else { return None };
        let (device, older) = match (target, last) {
            (Some(epoch), _) => (self.device_at(*epoch), self.head.attach_epoch),
            (None, Some(last)) => (last.name.clone(), last.older),
            (None, None) => return None,
        };
        let until = now.at + deadline.saturating_duration_since(now.instant);
        Some(SentCall { id: call.plan.id, device, older, until, consent: call.consent.clone() })
    }

    /// Continues a turn after a restart with the calls that have no result.
    pub(super) fn replanned(
        &mut self,
        id: TurnId,
        attempt: u32,
        plan: Result<Replanned, Failure>,
        now: Now,
        step: &mut Step,
    ) {
        let Some(turn) = self.front(id) else { return };
        if turn.attempt != attempt || !matches!(turn.state, TurnState::Replanning) {
            return;
        }
        let is_used_up =
            matches!(self.queue.front(), Some(Item::Turn(turn)) if self.is_used_up(turn));
        let early = std::mem::take(&mut self.early_results);
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
                let open = turn.open_calls.take().unwrap_or_default();
                for plan in calls {
                    let left = open.iter().find(|left| left.n == plan.n).cloned();
                    self.take_up_call(id, seq, plan, left, now, step);
                }
                for EarlyResult { epoch, call, result } in early {
                    self.tool_result(epoch, call, result, now, step);
                }
                self.calls_begun(id, now, step);
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

    /// `left`: the last owner stopped in good order, and left it open.
    fn take_up_call(
        &mut self,
        turn: TurnId,
        seq: Seq,
        plan: PlannedCall,
        left: Option<OpenCall>,
        now: Now,
        step: &mut Step,
    ) {
        let of = CallOf::Turn(turn);
        match left {
            Some(OpenCall { sent: Some(sent), .. }) => {
                self.resume_call(of, seq, plan, sent, now, step);
            }
            // Nobody has it yet, whatever was allowed before.
            Some(OpenCall { sent: None, .. }) => {
                let permission = plan.permission.map(|it| Permission { replanned: false, ..it });
                let plan = PlannedCall { permission, again: true, ..plan };
                self.begin_call(of, seq, plan, now, step);
            }
            None if plan.may_have_run() => self.interrupted(of, plan, now, step),
            None => self.begin_call(of, seq, plan, now, step),
        }
    }

    /// Goes on with a call that an earlier owner has sent to a device.
    pub(super) fn resume_call(
        &mut self,
        of: CallOf,
        seq: Seq,
        plan: PlannedCall,
        sent: SentCall,
        now: Now,
        step: &mut Step,
    ) {
        let Work::Device { input, patience, wait, .. } = &plan.work else {
            return self.begin_call(of, seq, plan, now, step);
        };
        let asks = match sent.consent {
            Consent::DeviceAsks => plan.permission.as_ref().map(Permission::time),
            Consent::Rule | Consent::Person(_) => None,
        };
        let Some(deadline) = sent.deadline(*patience + asks.unwrap_or_default(), now) else {
            return match of {
                CallOf::Turn(_) if plan.again => self.begin_call(of, seq, plan, now, step),
                _ => self.interrupted(of, plan, now, step),
            };
        };
        let state = CallState::Device {
            input: Arc::new(input.clone()),
            target: None,
            last: Some(LastDevice { name: sent.device, older: sent.older }),
            deadline,
            wait_until: now.instant + *wait.max(patience),
        };
        let plan = Arc::new(PlannedCall { id: sent.id, ..plan });
        let call = Call { plan, of, state, begun: now.instant, consent: sent.consent };
        self.send_to_device(call, now, step);
    }

    fn interrupted(&mut self, of: CallOf, plan: PlannedCall, now: Now, step: &mut Step) {
        let (state, plan, consent) = (CallState::LeftOpen, Arc::new(plan), Consent::Rule);
        let call = Call { plan, of, state, begun: now.instant, consent };
        self.call_done(call, Err(CALL_INTERRUPTED.into()), now, step);
    }

    /// Keeps a device's result of an open call until the turn is planned again. Any other is dropped
    /// (SBP-L5-04).
    pub(super) fn result_before_its_call(
        &mut self,
        epoch: u64,
        call: Uuid,
        result: Result<Value, String>,
    ) {
        let Some(Item::Turn(turn)) = self.queue.front() else { return };
        let open = turn.open_calls.iter().flatten().filter_map(|open| open.sent.as_ref());
        let is_open = open.clone().any(|sent| sent.id == call);
        if is_open && self.early_results.iter().all(|early| early.call != call) {
            self.early_results.push(EarlyResult { epoch, call, result });
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
}
