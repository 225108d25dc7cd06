//! Whether a tool call may be made: by a rule, because its device asks by itself, because a person allowed
//! it for good, or after a person says yes (G21).
//!
//! Invariants
//! - What a person allowed goes to the device that they were shown, and only while the tool's
//!   definition is the one that they were shown.
//! - Nobody is asked who cannot be reached, unless the caller said to wait.

use super::approvals::Question;
use super::calls::{Call, CallOf};
use super::surfaces::Surface;
use super::{Machine, Step};
use crate::approval::DefinitionChange;
use crate::id::UserId;
use crate::session::commit::Write;
use crate::session::input::Now;
use crate::session::open_call::{Allowed, Consent};
use crate::session::row::GrantRow;
use crate::session::turn::{Permission, Work};
use crate::surface::SurfaceTool;

/// The most permissions for good of one session; the oldest is dropped first.
const MOST_GRANTS: usize = 256;

impl Consent {
    /// Whether the call may go to that tool of that surface.
    pub(super) fn covers(&self, surface: &Surface, tool: &SurfaceTool, all: &[Surface]) -> bool {
        match self {
            Consent::Rule => true,
            Consent::DeviceAsks => tool.asks,
            Consent::Person(shown) => {
                let is_it = match surface.device() {
                    // Another one can be the same device only when that is gone.
                    None => {
                        let is_there = all.iter().any(|other| other.epoch == shown.epoch);
                        surface.epoch == shown.epoch
                            || (!is_there && surface.epoch > shown.newer_than)
                    }
                    Some(_) => true,
                };
                surface.device() == shown.device.as_deref()
                    && is_it
                    && tool.definition() == shown.definition
            }
        }
    }
}

/// Where a call would go.
struct CallTarget {
    /// As in [`GrantRow::device`].
    device: String,
    asks: bool,
    shown: Allowed,
}

/// What becomes of a call that needs permission.
pub(super) enum Permitted {
    Now(Consent),
    /// It has to be asked for.
    Ask(Box<(Permission, Allowed)>),
    No(String),
}

impl Machine {
    pub(super) fn permitted(&self, call: &Call, permission: &Permission) -> Permitted {
        let Some(target) = self.target(&call.plan.work, permission) else {
            return Permitted::No(super::calls::WENT_AWAY.into());
        };
        if permission.unless_device_asks && target.asks {
            return Permitted::Now(Consent::DeviceAsks);
        }
        let tool = &permission.approval.tool_name;
        let granted =
            self.grants.iter().find(|grant| grant.tool == *tool && grant.device == target.device);
        let mut permission = permission.clone();
        match granted {
            // Two people are asked each time.
            _ if permission.approval.second_person => {}
            Some(grant) if grant.definition == target.shown.definition => {
                return Permitted::Now(Consent::Person(target.shown));
            }
            Some(grant) => {
                let (before, now) = (grant.definition.clone(), target.shown.definition.clone());
                permission.approval.changed = Some(DefinitionChange { before, now });
            }
            None => {}
        }
        if let CallOf::Turn(turn) = call.of {
            let request = self.request(turn).map(|(request, _)| request);
            let author = request.as_ref().and_then(|request| request.author.as_ref());
            let author = author.map(|author| author.user);
            permission.approval.asked_by = Some(author.unwrap_or(self.user));
            permission.wait |= request.is_some_and(|request| request.wait_for_approval);
        }
        if !permission.wait && !self.is_reachable(&permission) {
            return Permitted::No(nobody(tool));
        }
        permission.approval.device.clone_from(&target.shown.device);
        Permitted::Ask(Box::new((permission, target.shown)))
    }

    /// Whether somebody who may decide is attached.
    fn is_reachable(&self, permission: &Permission) -> bool {
        let asked_by = permission.approval.asked_by;
        let counts = |user: UserId| !permission.approval.second_person || Some(user) != asked_by;
        self.surfaces.iter().any(|surface| surface.approver.is_some_and(counts))
    }

    /// Where the call would go now; none if no device has the tool.
    fn target(&self, work: &Work, permission: &Permission) -> Option<CallTarget> {
        let newer_than = self.head.attach_epoch;
        let Work::Device { tool, .. } = work else {
            let definition = permission.definition.clone();
            let shown = Allowed { device: None, definition, epoch: 0, newer_than };
            return Some(CallTarget { device: String::new(), asks: false, shown });
        };
        let epoch = self.surface_with(tool, |_, _| true)?;
        let surface = self.surface_at(epoch)?;
        let tool = surface.tools.iter().find(|known| known.name == *tool)?;
        let device = surface.device().map(str::to_owned);
        Some(CallTarget {
            device: grant_key(device.as_deref(), epoch),
            asks: tool.asks,
            shown: Allowed { device, definition: tool.definition(), epoch, newer_than },
        })
    }

    /// A person allowed the tool of this approval for good.
    pub(super) fn grant(&mut self, asked: &Question, now: Now, step: &mut Step) {
        let shown = &asked.shown;
        let device = grant_key(shown.device.as_deref(), shown.epoch);
        let grant = GrantRow {
            tool: asked.approval.tool_name.clone(),
            device,
            definition: shown.definition.clone(),
            at: now.at,
        };
        self.grants.retain(|old| (&old.tool, &old.device) != (&grant.tool, &grant.device));
        self.grants.push(grant.clone());
        if self.grants.len() > MOST_GRANTS {
            self.grants.remove(0);
        }
        step.write(Write::Grant(grant));
    }
}

/// A device in [`GrantRow::device`]. Names and epochs cannot be taken for each other.
fn grant_key(name: Option<&str>, epoch: u64) -> String {
    match (name, epoch) {
        (Some(name), _) => format!("@{name}"),
        (None, 0) => String::new(),
        (None, epoch) => format!("#{epoch}"),
    }
}

/// Why a call was not made, for the model and for who reads the log.
fn nobody(tool: &str) -> String {
    format!(
        "{tool} needs a person's approval, and nobody who may approve is attached. Write a rule \
         ([[tools.rules]] tool = \"{tool}\", policy = \"allow\"), attach with a key that has the \
         scope `approve`, or send the request with sbp.approvals = \"wait\""
    )
}
