//! From one owner to the next: what is left open at a stop in good order, and the turn that waits for tools
//! after a restart (G16, SBP-L2-13).
//!
//! Invariants
//! - A stop loses no call: a device that has one answers it to the next owner, under the same id.
//! - After a crash a call that may have been made is not made again, unless its tool is idempotent.
//! - What an owner left open is taken up once: it is of one run of the turn.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use super::calls::{Call, CallOf, CallState};
use super::device_calls::{LastDevice, bounded};
use super::permissions::Permitted;
use super::turns::{Item, TurnState};
use super::{Machine, Step};
use crate::error::Failure;
use crate::frame::TurnStatus;
use crate::id::{Seq, TurnId};
use crate::message::EntryKind;
use crate::session::commit::Write;
use crate::session::effect::{Refusal, Reply};
use crate::session::input::{CommandId, Now};
use crate::session::log::NewEntry;
use crate::session::open_call::{Consent, OpenCall, OpenCalls, SentCall};
use crate::session::turn::{CALL_INTERRUPTED, Permission, PlannedCall, Replanned, Work};
use crate::tool_result::content;

/// How long who has to be there for a call that is not begun may take to come back, if the call itself has
/// no timeout.
const RETURN_TIME: Duration = Duration::from_secs(30);

/// Whether a device has a call, or had it when it disconnected.
enum Sent {
    No,
    To(SentCall),
    /// To one that cannot be told from others when all come back.
    ToOneOfMany,
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
        for mut call in std::mem::take(&mut self.calls) {
            if let CallState::LeftOpen { until, .. } = &mut call.state {
                *until = None;
            }
            let Some(to) = call.caller() else {
                self.calls.push(call);
                continue;
            };
            match self.sent(&call, now) {
                Sent::No => told.push(to),
                Sent::To(sent) => {
                    step.reply(to, Reply::CallLeftOpen(Box::new(sent)));
                    self.calls.push(Call { of: CallOf::Nobody, ..call });
                }
                Sent::ToOneOfMany => step.reply(to, Reply::Called(Err(CALL_INTERRUPTED.into()))),
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
        let waits =
            its.filter(|call| !matches!(call.state, CallState::Asking(_) | CallState::Task));
        let open = waits.filter_map(|call| {
            let sent = match self.sent(call, now) {
                Sent::No => None,
                Sent::To(sent) => Some(sent),
                Sent::ToOneOfMany => return None,
            };
            Some(OpenCall { n: call.plan.n, sent })
        });
        let (attempt, stops, calls) = (turn.attempt, turn.stops + 1, open.collect());
        step.write(Write::LeaveOpen { turn: turn.id, open: OpenCalls { attempt, stops, calls } });
    }

    fn sent(&self, call: &Call, now: Now) -> Sent {
        let CallState::Device { target, last, deadline, .. } = &call.state else { return Sent::No };
        let at = target.and_then(|epoch| self.surface_at(epoch));
        let at = at.map(|surface| LastDevice::new(surface, self.head.attach_epoch));
        match at.as_ref().or(last.as_ref()) {
            None => Sent::No,
            Some(device) if !device.is_distinct() => Sent::ToOneOfMany,
            Some(LastDevice { name, older, .. }) => Sent::To(SentCall {
                id: call.plan.id,
                device: name.clone(),
                older: *older,
                until: now.at + deadline.saturating_duration_since(now.instant),
                consent: call.consent.clone(),
            }),
        }
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
                let open = std::mem::take(&mut turn.open_calls);
                for plan in calls {
                    let left = open.iter().find(|left| left.n == plan.n).cloned();
                    self.take_up_call(id, seq, plan, left, now, step);
                }
                for (id, result) in early {
                    if let Some(at) = self.calls.iter().position(|call| call.plan.id == id) {
                        let call = self.calls.remove(at);
                        self.call_done(call, bounded(result), now, step);
                    }
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
            Some(OpenCall { sent: Some(sent), .. }) => match plan.again && sent.is_over(now) {
                true => self.begin_call(of, seq, plan, now, step),
                false => self.resume_call(of, plan, sent, now, step),
            },
            Some(OpenCall { sent: None, .. }) => {
                // Nobody has it yet, whatever was allowed before.
                let permission = plan.permission.map(|it| Permission { replanned: false, ..it });
                let plan = PlannedCall { permission, again: true, ..plan };
                self.begin_or_wait(of, seq, plan, now, step);
            }
            None if plan.may_have_run() => self.interrupted(of, plan, now, step),
            None => self.begin_call(of, seq, plan, now, step),
        }
    }

    /// Begins a call that was left open; or waits for its device, and for whoever has to allow it, to come back.
    fn begin_or_wait(
        &mut self,
        of: CallOf,
        seq: Seq,
        plan: PlannedCall,
        now: Now,
        step: &mut Step,
    ) {
        let patience = match &plan.work {
            Work::Device { patience, .. } => *patience,
            Work::Known(_) | Work::Task { .. } => RETURN_TIME,
        };
        let until = (!self.stopping).then(|| now.instant + patience);
        let state = CallState::LeftOpen { seq, until };
        let (begun, plan, consent) = (now.instant, Arc::new(plan), Consent::Rule);
        self.begin_if_possible(Call { plan, of, state, begun, consent }, now, step);
    }

    /// A surface attached: calls that were left open may begin now.
    pub(super) fn begin_calls_left_open(&mut self, now: Now, step: &mut Step) {
        let left = |call: &mut Call| matches!(call.state, CallState::LeftOpen { .. });
        for call in self.calls.extract_if(.., left).collect::<Vec<_>>() {
            self.begin_if_possible(call, now, step);
        }
    }

    fn begin_if_possible(&mut self, call: Call, now: Now, step: &mut Step) {
        let CallState::LeftOpen { seq, .. } = call.state else { return };
        let possible = call.plan.permission.as_ref().is_none_or(|permission| {
            let (turn, place) = (permission.approval.turn_id, (seq, call.plan.n));
            self.asked.iter().any(|asked| asked.place == place && asked.is_of(turn))
                || !matches!(self.permitted(&call, permission), Permitted::No(_))
        });
        match possible && !self.stopping {
            true => self.begin_call(call.of, seq, PlannedCall::clone(&call.plan), now, step),
            false => self.calls.push(call),
        }
    }

    /// The caller of a call without a turn asks on, which an owner has sent and left open.
    pub(super) fn resume_device_call(
        &mut self,
        to: CommandId,
        call: PlannedCall,
        sent: SentCall,
        now: Now,
        step: &mut Step,
    ) {
        if let Some(known) = self.calls.iter_mut().find(|known| known.plan.id == sent.id) {
            known.of = CallOf::Command(to);
            return;
        }
        if let Some(at) = self.left_results.iter().position(|(id, _)| *id == sent.id) {
            return step.reply(to, Reply::Called(self.left_results.swap_remove(at).1));
        }
        match self.stopping {
            true => step.reply(to, Reply::CallLeftOpen(Box::new(sent))),
            false => {
                // Takes the lease: the device attaches where the session has its owner.
                self.head.updated_at = now.at;
                self.resume_call(CallOf::Command(to), call, sent, now, step);
            }
        }
    }

    /// Goes on with a call that an earlier owner has sent to a device.
    fn resume_call(
        &mut self,
        of: CallOf,
        plan: PlannedCall,
        sent: SentCall,
        now: Now,
        step: &mut Step,
    ) {
        // A rule of today may deny what the device does already.
        let Work::Device { input, patience, wait, .. } = &plan.work else {
            return self.interrupted(of, plan, now, step);
        };
        let asks = match sent.consent {
            Consent::DeviceAsks => plan.permission.as_ref().map(Permission::time),
            Consent::Rule | Consent::Person(_) => None,
        };
        let Some(deadline) = sent.deadline(*patience + asks.unwrap_or_default(), now) else {
            return self.interrupted(of, plan, now, step);
        };
        let state = CallState::Device {
            input: Arc::new(input.clone()),
            target: None,
            last: Some(LastDevice::of_sent(&sent)),
            deadline,
            wait_until: now.instant + *wait.max(patience),
        };
        let plan = Arc::new(PlannedCall { id: sent.id, ..plan });
        let call = Call { plan, of, state, begun: now.instant, consent: sent.consent };
        self.send_to_device(call, now, step);
    }

    /// Ends a call that may have been made, and is not made again.
    fn interrupted(&mut self, of: CallOf, plan: PlannedCall, now: Now, step: &mut Step) {
        let (state, plan, consent) = (CallState::Task, Arc::new(plan), Consent::Rule);
        let call = Call { plan, of, state, begun: now.instant, consent };
        self.call_done(call, Err(CALL_INTERRUPTED.into()), now, step);
    }

    /// Keeps a device's result of an open call until the turn is planned again: the newest, and only from the
    /// device that has the call. Any other is dropped (SBP-L5-04).
    pub(super) fn keep_result(&mut self, epoch: u64, call: Uuid, result: Result<Value, String>) {
        let Some(surface) = self.surface_at(epoch) else { return };
        let front = self.queue.front().and_then(Item::turn);
        let open = front.iter().flat_map(|turn| &turn.open_calls);
        let mut sent = open.filter_map(|open| open.sent.as_ref());
        let is_its = |sent: &SentCall| sent.id == call && LastDevice::of_sent(sent).is(surface);
        if sent.any(is_its) {
            self.early_results.retain(|(early, _)| *early != call);
            self.early_results.push((call, result));
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
