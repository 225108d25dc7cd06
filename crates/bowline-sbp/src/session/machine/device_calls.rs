//! Calls of tools on devices: sent to an attached surface, and again to the same device when it comes back.
//!
//! A device that disconnects has as long as the configuration says to come back. One whose gateway process
//! restarts has the tool's whole timeout: it did not leave. But then others come back at the same time,
//! and a device that joined them without a `surface_id` cannot be told from those.
//!
//! Invariants
//! - Only a call that was sent to an attached surface can be answered, and only once (SBP-L5-04).
//! - A call that was sent is resent only to the same device, under the same id: another device must
//!   not repeat what the first may have done. A surface without a `surface_id` counts as the same
//!   device if it attaches in the same way, joined or not, and replaced the first or attached after it
//!   left; one attached beside it does not.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use super::calls::{Call, CallOf, CallState, WENT_AWAY};
use super::surfaces::Surface;
use super::{Machine, Step};
use crate::session::input::Now;
use crate::session::live::DeviceCall;
use crate::session::open_call::SentCall;
use crate::session::turn::Work;
use crate::surface::SurfaceTool;

/// The largest tool result of a device, in bytes.
const LARGEST_RESULT: usize = 1 << 20;

/// The device that has a call, or had it when it disconnected.
#[derive(Debug, Clone)]
pub(super) struct LastDevice {
    pub(super) name: Option<String>,
    /// It had joined others.
    pub(super) joined: bool,
    /// The device can only come back with an epoch greater than this.
    pub(super) older: u64,
}

/// How an attachment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SurfaceEnd {
    Left,
    /// By the newest attachment.
    Replaced,
    /// Its gateway process stops or is lost.
    Restarts,
}

impl LastDevice {
    pub(super) fn new(surface: &Surface, older: u64) -> Self {
        let name = surface.device().map(str::to_owned);
        Self { name, joined: surface.joined, older }
    }

    /// The device of a call that an earlier owner has sent: only one that is distinct is named there.
    pub(super) fn of_sent(sent: &SentCall) -> Self {
        Self { name: sent.device.clone(), joined: false, older: sent.older }
    }

    pub(super) fn is(&self, surface: &Surface) -> bool {
        surface.epoch > self.older
            && surface.device() == self.name.as_deref()
            && (self.name.is_some() || surface.joined == self.joined)
    }

    /// Whether it can be told from all others when everybody comes back.
    pub(super) fn is_distinct(&self) -> bool {
        self.name.is_some() || !self.joined
    }
}

impl Call {
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
    /// Finds a device for a call: the newest with the tool. A call that was sent before waits for
    /// the same device.
    pub(super) fn send_to_device(&mut self, mut call: Call, now: Now, step: &mut Step) {
        // Left to the next owner.
        if self.stopping {
            return self.calls.push(call);
        }
        let Work::Device { tool, .. } = &call.plan.work else { return };
        let CallState::Device { target, last, wait_until, .. } = &mut call.state else { return };
        let waits = *wait_until > now.instant;
        let fits = |surface: &Surface, tool: &SurfaceTool| {
            last.as_ref().is_none_or(|last| last.is(surface))
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
            None if waits => self.calls.push(call),
            None => self.call_done(call, Err(WENT_AWAY.into()), now, step),
        }
    }

    /// An attachment ended: its calls wait for the same device, or end.
    pub(super) fn calls_lost(
        &mut self,
        surface: &Surface,
        end: SurfaceEnd,
        now: Now,
        step: &mut Step,
    ) {
        let epoch = surface.epoch;
        let older = self.head.attach_epoch - u64::from(end == SurfaceEnd::Replaced);
        let device = LastDevice::new(surface, older);
        for mut call in self.calls.extract_if(.., |call| call.is_at(epoch)).collect::<Vec<_>>() {
            let Work::Device { wait, patience, .. } = &call.plan.work else { continue };
            let wait = match end {
                SurfaceEnd::Restarts if device.is_distinct() => *wait.max(patience),
                SurfaceEnd::Restarts => Duration::ZERO,
                SurfaceEnd::Left | SurfaceEnd::Replaced => *wait,
            };
            if let CallState::Device { target, last, wait_until, .. } = &mut call.state {
                *target = None;
                *last = Some(device.clone());
                *wait_until = now.instant + wait;
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
        self.begin_calls_left_open(now, step);
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
        let Some(at) = self.calls.iter().position(|call| call.plan.id == id) else {
            return self.keep_result(epoch, id, result);
        };
        let CallState::Device { target, last, .. } = &self.calls[at].state else { return };
        let of = target.and_then(|target| self.device_at(target));
        let of = of.or_else(|| last.as_ref().and_then(|last| last.name.clone()));
        let same = || of.is_some() && self.device_at(epoch) == of;
        if *target != Some(epoch) && !same() {
            return;
        }
        let (call, result) = (self.calls.remove(at), bounded(result));
        // Its caller asks again in a moment.
        if call.of == CallOf::Nobody {
            return self.left_results.push((id, result));
        }
        self.call_done(call, result, now, step);
    }
}

/// A device's result, or an error if it is too large.
pub(super) fn bounded(result: Result<Value, String>) -> Result<Value, String> {
    let size = match &result {
        Ok(value) => value.to_string().len(),
        Err(why) => why.len(),
    };
    match size > LARGEST_RESULT {
        true => Err(format!("the device's answer is over {LARGEST_RESULT} bytes")),
        false => result,
    }
}
