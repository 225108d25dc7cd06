//! Surfaces and devices: attachments, delivery cursors, known devices (SBP-L2-16, L2-20, L4-05).
//!
//! Invariants
//! - An epoch is assigned once; messages with a closed epoch are ignored (G6).
//! - Cursors never move back, and the session's is the furthest of all (G5).
//! - A session is `Suspended` only when its last surface detaches.

use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

use super::device_calls::SurfaceEnd;
use super::{Machine, Step};
use crate::id::{Seq, UserId};
use crate::lifecycle::Change;
use crate::session::commit::Write;
use crate::session::effect::Refusal;
use crate::session::input::{Attach, Attached, DeviceChange, Now};
use crate::session::live::{Closed, LiveSurface};
use crate::session::row::{AttachmentRow, DeviceRow};
use crate::surface::{SurfaceContext, SurfaceTool};

/// The most devices kept per session; the least recently seen are dropped first. Devices with a
/// valid token are not dropped and have a limit of the same size.
const MOST_DEVICES: usize = 64;
/// The most closed attachments kept with the reason.
const MOST_CLOSED: usize = 64;

#[derive(Debug, Clone)]
pub(super) struct Surface {
    pub(super) epoch: u64,
    socket: Uuid,
    pub(super) joined: bool,
    context: Arc<SurfaceContext>,
    pub(super) tools: Arc<[SurfaceTool]>,
    /// When its device token expires, if it has one.
    until: Option<Timestamp>,
    /// The session is shared with its user.
    guest: bool,
    /// Its user, if that may decide on tool calls.
    pub(super) approver: Option<UserId>,
}

/// The share of a session's places for surfaces that guests may take besides.
pub(super) const GUESTS: usize = 4;

impl Surface {
    pub(super) fn live(&self) -> LiveSurface {
        LiveSurface {
            epoch: self.epoch,
            joined: self.joined,
            context: Arc::clone(&self.context),
            tools: Arc::clone(&self.tools),
        }
    }

    pub(super) fn device(&self) -> Option<&str> {
        self.context.surface_id.as_deref()
    }
}

impl Machine {
    pub(super) fn attach(
        &mut self,
        attach: Attach,
        now: Now,
        step: &mut Step,
    ) -> Result<Attached, Refusal> {
        if let Some(attached) = self.attached_before(attach.socket) {
            return Ok(attached);
        }
        let mut said = attach.surface;
        let mut until = None;
        if let Some(token) = attach.device {
            // The device token decides which device this is, whatever `surface_id` was sent.
            let good = |device: &&DeviceRow| {
                device.token.is_some_and(|(hash, expires)| hash == token && expires > now.at)
            };
            let device = self.devices.iter().find(good).ok_or(Refusal::Revoked)?;
            said.surface_id = Some(device.surface_id.clone());
            until = device.token.map(|(_, expires)| expires);
        }
        let replaced: Vec<u64> = self
            .surfaces
            .iter()
            .filter(|other| {
                let same =
                    said.surface_id.is_some() && other.device() == said.surface_id.as_deref();
                same || attach.take_over || (!attach.join && !other.joined)
            })
            .map(|other| other.epoch)
            .collect();
        // Guests have places of their own, so that they take none of the session's user.
        let most = match attach.guest {
            true => (self.limits.surfaces / GUESTS).max(1),
            false => self.limits.surfaces,
        };
        let others = self.surfaces.iter().filter(|other| other.guest == attach.guest);
        let others = others.filter(|other| !replaced.contains(&other.epoch)).count();
        if others >= most {
            return Err(Refusal::TooManySurfaces(most));
        }
        self.head.attach_epoch += 1;
        let epoch = self.head.attach_epoch;
        // A session that was handed off can be read; attaching does not resume it (G8).
        if self.head.handed_to.is_none() && !attach.guest {
            self.move_on(Change::SurfaceAttached, now);
        }
        self.head.updated_at = now.at;
        let (context, cursor) = match attach.guest {
            true => (said, self.head.delivered_seq),
            false => self.recognise(said, now, step),
        };
        step.write(Write::Attach(AttachmentRow {
            epoch,
            edge: attach.edge,
            joined: attach.join,
            guest: attach.guest,
            context: context.clone(),
        }));
        self.surfaces.push(Surface {
            epoch,
            socket: attach.socket,
            joined: attach.join,
            context: Arc::new(context.clone()),
            tools: attach.tools.into(),
            until,
            guest: attach.guest,
            approver: attach.approver,
        });
        for epoch in replaced {
            self.close(epoch, Closed::Replaced, now, step);
        }
        self.calls_for_new_surface(now, step);
        Ok(Attached { epoch, context, cursor, head: self.head.last_seq, until })
    }

    /// A retried attach: its reply was lost, or it was sent twice.
    fn attached_before(&self, socket: Uuid) -> Option<Attached> {
        let surface = self.surfaces.iter().find(|surface| surface.socket == socket)?;
        let is_its = |device: &&DeviceRow| Some(&*device.surface_id) == surface.device();
        let device = self.devices.iter().find(is_its);
        let cursor = device.and_then(|device| device.delivered_seq);
        Some(Attached {
            epoch: surface.epoch,
            context: SurfaceContext::clone(&surface.context),
            cursor: cursor.unwrap_or(self.head.delivered_seq),
            head: self.head.last_seq,
            until: surface.until,
        })
    }

    /// The device's context, with fields it left out taken from before; and its delivery cursor.
    /// A new device, or one without a `surface_id`, starts at the session's cursor.
    fn recognise(
        &mut self,
        said: SurfaceContext,
        now: Now,
        step: &mut Step,
    ) -> (SurfaceContext, Seq) {
        let delivered = self.head.delivered_seq;
        let Some(name) = said.surface_id.clone() else { return (said, delivered) };
        let known = self.devices.iter().position(|device| device.surface_id == name);
        let row = match known.map(|at| self.devices_mut().swap_remove(at)) {
            None => DeviceRow {
                surface_id: name,
                context: said,
                first_seen: now.at,
                last_seen: Some(now.at),
                token: None,
                delivered_seq: Some(delivered),
            },
            Some(before) => DeviceRow {
                context: said.or(before.context),
                last_seen: Some(now.at),
                delivered_seq: before.delivered_seq.or(Some(delivered)),
                ..before
            },
        };
        let found = (row.context.clone(), row.delivered_seq.unwrap_or(delivered));
        step.write(Write::Device(row.clone()));
        self.devices_mut().push(row);
        self.forget_longest_away(now, step);
        found
    }

    fn forget_longest_away(&mut self, now: Now, step: &mut Step) {
        let may_go =
            |device: &&DeviceRow| device.token.is_none_or(|(_, expires)| expires <= now.at);
        while self.devices.iter().filter(may_go).count() > MOST_DEVICES {
            let oldest = self.devices.iter().filter(may_go).min_by_key(|device| device.last_seen);
            let Some(name) = oldest.map(|device| device.surface_id.clone()) else { return };
            self.drop_device(&name, step);
        }
    }

    fn drop_device(&mut self, name: &str, step: &mut Step) {
        self.devices_mut().retain(|device| device.surface_id != name);
        step.write(Write::ForgetDevice { surface_id: name.to_owned() });
    }

    /// A surface confirmed delivery up to `seq`.
    pub(super) fn confirmed(&mut self, epoch: u64, seq: Seq, step: &mut Step) {
        if seq > self.head.last_seq {
            return;
        }
        let Some(surface) = self.surfaces.iter().find(|surface| surface.epoch == epoch) else {
            return;
        };
        let device = surface.device().and_then(|name| {
            Arc::make_mut(&mut self.devices).iter_mut().find(|device| device.surface_id == name)
        });
        if let Some(device) = device
            && device.delivered_seq.is_none_or(|before| before < seq)
        {
            device.delivered_seq = Some(seq);
            step.write(Write::Device(device.clone()));
        }
        if self.head.delivered_seq < seq {
            self.head.delivered_seq = seq;
            step.write(Write::Delivered { seq });
        }
    }

    /// A surface detached or its socket failed. A no-op if the attachment is closed already.
    pub(super) fn surface_gone(&mut self, epoch: u64, restarts: bool, now: Now, step: &mut Step) {
        let end = if restarts { SurfaceEnd::Restarts } else { SurfaceEnd::Left };
        self.detach(epoch, end, now, step);
    }

    /// Closes an attachment; the replica that holds its socket sees the reason in the live state.
    fn close(&mut self, epoch: u64, why: Closed, now: Now, step: &mut Step) {
        let end = match why {
            Closed::Replaced => SurfaceEnd::Replaced,
            Closed::Revoked => SurfaceEnd::Left,
        };
        if self.detach(epoch, end, now, step) {
            self.closed.push_back((epoch, why));
            if self.closed.len() > MOST_CLOSED {
                self.closed.pop_front();
            }
        }
    }

    fn detach(&mut self, epoch: u64, end: SurfaceEnd, now: Now, step: &mut Step) -> bool {
        let Some(at) = self.surfaces.iter().position(|surface| surface.epoch == epoch) else {
            return false;
        };
        let surface = self.surfaces.remove(at);
        step.write(Write::Detach { epoch });
        if !surface.guest && self.surfaces.iter().all(|other| other.guest) {
            self.move_on(Change::SurfaceLost, now);
        }
        self.head.updated_at = now.at;
        self.calls_lost(&surface, end, now, step);
        true
    }

    /// Ends all attachments, because the session was handed off.
    pub(super) fn detach_all(&mut self, now: Now, step: &mut Step) {
        for surface in std::mem::take(&mut self.surfaces) {
            step.write(Write::Detach { epoch: surface.epoch });
            self.calls_lost(&surface, SurfaceEnd::Left, now, step);
        }
        self.head.attach_epoch += 1;
    }

    pub(super) fn change_device(
        &mut self,
        change: DeviceChange,
        now: Now,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let (name, had_token) = match change {
            DeviceChange::Forget { surface_id } => {
                let known = self.devices.iter().find(|device| device.surface_id == surface_id);
                let had_token = known.ok_or(Refusal::NoDevice)?.token.is_some();
                self.drop_device(&surface_id, step);
                (surface_id, had_token)
            }
            DeviceChange::Token { surface_id, hash, expires_at } => {
                self.forget_never_seen(now, step);
                let is_good = |device: &&DeviceRow| {
                    device.surface_id != surface_id
                        && device.token.is_some_and(|(_, expires)| expires > now.at)
                };
                if self.devices.iter().filter(is_good).count() >= MOST_DEVICES {
                    return Err(Refusal::TooManyDevices(MOST_DEVICES));
                }
                let known = self.devices.iter().position(|known| known.surface_id == surface_id);
                let before = known.map(|at| self.devices_mut().swap_remove(at));
                let had_token = before.as_ref().is_some_and(|device| device.token.is_some());
                let before = before.unwrap_or_else(|| DeviceRow {
                    surface_id: surface_id.clone(),
                    context: SurfaceContext {
                        surface_id: Some(surface_id.clone()),
                        ..SurfaceContext::default()
                    },
                    first_seen: now.at,
                    last_seen: None,
                    token: None,
                    delivered_seq: None,
                });
                let row = DeviceRow { token: Some((hash, expires_at)), ..before };
                step.write(Write::Device(row.clone()));
                self.devices_mut().push(row);
                (surface_id, had_token)
            }
        };
        if had_token {
            let its = self.surfaces.iter().filter(|surface| surface.device() == Some(&name));
            for epoch in its.map(|surface| surface.epoch).collect::<Vec<_>>() {
                self.close(epoch, Closed::Revoked, now, step);
            }
        }
        Ok(())
    }

    fn devices_mut(&mut self) -> &mut Vec<DeviceRow> {
        Arc::make_mut(&mut self.devices)
    }

    /// Drops devices that never attached and whose token has expired.
    fn forget_never_seen(&mut self, now: Now, step: &mut Step) {
        let never = |device: &&DeviceRow| {
            device.last_seen.is_none() && device.token.is_none_or(|(_, expires)| expires <= now.at)
        };
        let names: Vec<_> =
            self.devices.iter().filter(never).map(|device| device.surface_id.clone()).collect();
        names.iter().for_each(|name| self.drop_device(name, step));
    }

    /// The newest attachment that has this tool and for which `fits` holds.
    pub(super) fn surface_with(
        &self,
        tool: &str,
        fits: impl Fn(&Surface, &SurfaceTool) -> bool,
    ) -> Option<u64> {
        let has = |surface: &&Surface| {
            surface.tools.iter().any(|known| known.name == tool && fits(surface, known))
        };
        self.surfaces.iter().filter(has).map(|surface| surface.epoch).max()
    }

    /// The attachment with this epoch.
    pub(super) fn surface_at(&self, epoch: u64) -> Option<&Surface> {
        self.surfaces.iter().find(|surface| surface.epoch == epoch)
    }

    /// Its `surface_id`.
    pub(super) fn device_at(&self, epoch: u64) -> Option<String> {
        self.surface_at(epoch)?.device().map(str::to_owned)
    }
}
