//! Approvals of tool calls: stored before anyone sees them, decided once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::calls::{Call, CallState};
use super::{Machine, Step};
use crate::approval::{Approval, ApprovalState, ApprovalStep, Decider, DecisionRecord};
use crate::id::{ApprovalId, Seq, TurnId};
use crate::session::commit::Write;
use crate::session::effect::Refusal;
use crate::session::input::Now;
use crate::session::open_call::Allowed;
use crate::session::row::AskedRow;

/// The largest tool input, as JSON, that a person is asked to approve: more cannot be reviewed.
const LARGEST_INPUT: usize = 64 << 10;
/// The most approvals kept in memory, including decided ones.
const MOST_ASKED: usize = 128;

/// A decision, and who made it.
#[derive(Debug, Clone)]
pub(super) struct PersonsDecision {
    pub(super) approved: bool,
    pub(super) always: bool,
    pub(super) by: Decider,
}

/// An approval, and when it expires.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) approval: Arc<Approval>,
    pub(super) place: (Seq, u32),
    /// What the person who decides is shown.
    pub(super) shown: Allowed,
    expires: Instant,
}

impl Question {
    pub(super) fn new(row: AskedRow, now: Now) -> Self {
        let left = now.at.duration_until(row.approval.expires_at);
        let expires = now.instant + Duration::try_from(left).unwrap_or_default();
        // Attachments end with their owner: which one it was is not known any more.
        let (device, definition) = (row.approval.device.clone(), row.definition);
        let shown = Allowed { device, definition, epoch: 0, newer_than: 0 };
        Self { approval: Arc::new(row.approval), place: row.place, shown, expires }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        (self.approval.state == ApprovalState::Pending).then_some(self.expires)
    }

    pub(super) fn live(&self) -> Arc<Approval> {
        Arc::clone(&self.approval)
    }

    pub(super) fn is_of(&self, turn: TurnId) -> bool {
        self.approval.turn_id == turn
    }

    /// Whether this person may approve it.
    fn check(&self, by: &Decider) -> Result<(), Refusal> {
        let approval = &self.approval;
        if approval.second_person && approval.asked_by == Some(by.user) {
            return Err(Refusal::SecondPerson);
        }
        match approval.asked_with.as_ref() == Some(&by.credential) {
            true => Err(Refusal::OwnCall),
            false => Ok(()),
        }
    }

    /// Undecided, or approved and its call not made yet.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.approval.state, ApprovalState::Pending | ApprovalState::Approved)
    }
}

impl Machine {
    /// Stores an approval request; watchers see it after the commit.
    pub(super) fn ask(
        &mut self,
        approval: Approval,
        place: (Seq, u32),
        shown: Allowed,
        now: Now,
        step: &mut Step,
    ) -> Result<Arc<Approval>, &'static str> {
        let open = self.asked.iter().filter(|asked| asked.deadline().is_some()).count();
        if open >= self.limits.calls {
            return Err("too many tool calls already wait for approval");
        }
        if approval.tool_input.to_string().len() > LARGEST_INPUT {
            return Err("the tool input is too large for a person to review");
        }
        let row = AskedRow { approval, place, definition: shown.definition.clone() };
        step.write(Write::Ask(row.clone()));
        let asked = Question { shown, ..Question::new(row, now) };
        let approval = asked.live();
        self.asked.push(asked);
        while self.asked.len() > MOST_ASKED {
            let ended = self.asked.iter().position(|known| known.deadline().is_none());
            self.asked.remove(ended.unwrap_or(0));
        }
        Ok(approval)
    }

    /// A person's decision. Returns the approval after it: of two decisions the first counts. None if
    /// there is no such approval.
    pub(super) fn decide(
        &mut self,
        id: ApprovalId,
        verdict: PersonsDecision,
        now: Now,
        step: &mut Step,
    ) -> Result<Option<Approval>, Refusal> {
        let Some(asked) = self.asked.iter().find(|asked| asked.approval.approval_id == id) else {
            return Ok(None);
        };
        let PersonsDecision { approved, always, by } = verdict;
        let was_open = asked.approval.state == ApprovalState::Pending;
        if approved && was_open {
            asked.check(&by)?;
        }
        let taken = if approved { ApprovalStep::Approve } else { ApprovalStep::Deny };
        let always = always && approved && !asked.approval.second_person;
        let decision = DecisionRecord { by, at: now.at, always };
        let _ = self.step_approval(id, taken, Some(decision), now, step);
        let asked = self.asked.iter().find(|asked| asked.approval.approval_id == id).cloned();
        if let Some(asked) = asked
            .filter(|asked| always && was_open && asked.approval.state == ApprovalState::Approved)
        {
            self.grant(&asked, now, step);
        }
        self.use_approval(id, now, step);
        let asked = self.asked.iter().find(|asked| asked.approval.approval_id == id);
        Ok(asked.map(|asked| Approval::clone(&asked.approval)))
    }

    /// Applies a step to an approval if its state allows it. None if there is no such approval.
    pub(super) fn step_approval(
        &mut self,
        id: ApprovalId,
        taken: ApprovalStep,
        decision: Option<DecisionRecord>,
        now: Now,
        step: &mut Step,
    ) -> Option<()> {
        let asked = self.asked.iter_mut().find(|asked| asked.approval.approval_id == id)?;
        if let Some(state) = asked.approval.after(taken, now.at) {
            let approval = Arc::make_mut(&mut asked.approval);
            approval.state = state;
            // The input is needed only until the call is made.
            if state != ApprovalState::Approved {
                approval.tool_input = Value::Null;
            }
            // A decision after the end is none.
            let decision = decision.filter(|_| state != ApprovalState::Expired);
            if decision.is_some() {
                approval.decision.clone_from(&decision);
            }
            step.write(Write::StepApproval { id, state, decision });
        }
        Some(())
    }

    /// Makes or refuses the call that waits for this approval, if it has been decided.
    pub(super) fn use_approval(&mut self, id: ApprovalId, now: Now, step: &mut Step) {
        let Some(asked) = self.asked.iter().find(|asked| asked.approval.approval_id == id) else {
            return;
        };
        let state = asked.approval.state;
        // While the gateway drains, an approved call is left to the next process.
        let waits =
            state == ApprovalState::Pending || (state == ApprovalState::Approved && self.stopping);
        let is_its = |call: &Call| matches!(call.state, CallState::Asking(asking) if asking == id);
        let Some(at) = self.calls.iter().position(is_its).filter(|_| !waits) else { return };
        let call = self.calls.remove(at);
        if state == ApprovalState::Approved {
            let _ = self.step_approval(id, ApprovalStep::Use, None, now, step);
            return self.make_call(call, now, step);
        }
        self.call_done(call, Err(no(state).into()), now, step);
    }
}

/// Why the call was not made, for the model.
pub(super) fn no(state: ApprovalState) -> &'static str {
    match state {
        ApprovalState::Expired => "the approval expired: nobody agreed to the call in time",
        _ => "the user does not allow this call",
    }
}
