//! What a surface was sent about its session besides turns: questions of other surfaces, calls of
//! its tools, approvals, and the list of attached surfaces.
//!
//! Nothing is queued: the current state is compared with what was sent. An approval can be decided
//! from any surface, so a surface that shows one is also told when it is resolved.

use std::collections::HashSet;
use std::time::Instant;

use bowline_sbp::approval::{Approval, ApprovalState};
use bowline_sbp::frame::{AttachedSurface, ServerFrame};
use bowline_sbp::id::{ApprovalId, SessionId, TurnId};
use bowline_sbp::session::LiveState;
use uuid::Uuid;

/// The most results of one attachment for calls that it was not sent.
const UNSENT: u8 = 64;

#[derive(Debug)]
pub(super) struct Notices {
    epoch: u64,
    joined: bool,
    approvals: Vec<ApprovalId>,
    calls: Vec<Uuid>,
    answered: Vec<Uuid>,
    /// How many results for calls that it was not sent are passed on still.
    unsent: u8,
    surfaces: Vec<AttachedSurface>,
}

impl Notices {
    pub(super) fn new(epoch: u64, joined: bool) -> Self {
        let (approvals, calls, answered) = (Vec::new(), Vec::new(), Vec::new());
        let surfaces = Vec::new();
        Self { epoch, joined, approvals, calls, answered, unsent: UNSENT, surfaces }
    }

    /// Questions that this surface was not sent yet: those of other surfaces and, if it joined,
    /// those that came by HTTP.
    pub(super) fn questions(
        &self,
        state: &LiveState,
        session_id: SessionId,
        asked: &mut HashSet<TurnId>,
    ) -> Vec<ServerFrame> {
        let mut frames = Vec::new();
        for turn in &state.turns {
            let sender = state.surfaces.iter().find(|other| Some(other.epoch) == turn.sender);
            if turn.sender == Some(self.epoch) || !(sender.is_some() || self.joined) {
                continue;
            }
            let Some(question) = turn.question.as_ref().filter(|_| turn.tethered) else { continue };
            if !asked.insert(turn.id) {
                continue;
            }
            frames.push(ServerFrame::UserTurn {
                turn_id: turn.id,
                session_id,
                content: question.to_string(),
                seq: None,
                surface_id: sender.and_then(|sender| sender.context.surface_id.clone()),
                author: turn.author.as_deref().map(str::to_owned),
            });
        }
        frames
    }

    /// Frames for what has changed since the last update.
    pub(super) fn update(&mut self, state: &LiveState, session_id: SessionId) -> Vec<ServerFrame> {
        let mut frames = Vec::new();
        for approval in &state.approvals {
            let id = approval.approval_id;
            let shown = self.approvals.iter().position(|shown| *shown == id);
            match (approval.state, shown) {
                (ApprovalState::Pending, None) => {
                    self.approvals.push(id);
                    frames.push(ServerFrame::ApprovalRequest(Box::new(Approval::clone(approval))));
                }
                (state, Some(at)) if state != ApprovalState::Pending => {
                    self.approvals.swap_remove(at);
                    frames.push(ServerFrame::ApprovalResolved {
                        approval_id: id,
                        session_id,
                        state,
                    });
                }
                _ => {}
            }
        }
        let is_open = |known: &Uuid| state.calls.iter().any(|call| call.call == *known);
        self.calls.retain(is_open);
        self.answered.retain(is_open);
        for call in state.calls.iter().filter(|call| call.epoch == self.epoch) {
            if self.calls.contains(&call.call) {
                continue;
            }
            self.calls.push(call.call);
            let left = call.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            frames.push(ServerFrame::ToolCall {
                call_id: call.call.to_string(),
                tool_name: call.tool.clone(),
                tool_input: serde_json::Value::clone(&call.input),
                timeout_ms: left.and_then(|left| u64::try_from(left.as_millis()).ok()),
            });
        }
        frames.extend(self.joined.then(|| self.who_is_there(state, session_id)).flatten());
        frames
    }

    fn who_is_there(&mut self, state: &LiveState, session_id: SessionId) -> Option<ServerFrame> {
        let surface = |surface: &bowline_sbp::session::LiveSurface| AttachedSurface {
            surface_id: surface.context.surface_id.clone(),
            device_type: surface.context.device_type.as_str().to_owned(),
            joined: surface.joined,
            you: surface.epoch == self.epoch,
        };
        let list: Vec<_> = state.surfaces.iter().map(surface).collect();
        if list == self.surfaces {
            return None;
        }
        self.surfaces.clone_from(&list);
        Some(ServerFrame::Surfaces { session_id, list })
    }

    /// The call that a device's result belongs to, for the session's owner, who knows which are open; `None`
    /// if it has a result already. The device may have the call from its last attachment, and its result
    /// may come before the call is sent again.
    pub(super) fn answered(&mut self, call_id: &str) -> Option<Uuid> {
        let call: Uuid = call_id.parse().ok()?;
        if self.answered.contains(&call) {
            return None;
        }
        if !self.calls.contains(&call) {
            self.unsent = self.unsent.checked_sub(1)?;
            return Some(call);
        }
        self.answered.push(call);
        Some(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g11_results_for_calls_that_a_surface_was_not_sent_are_bounded_and_its_own_are_not() {
        let mut notices = Notices::new(1, false);
        let (own, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        notices.calls.push(own);
        for _ in 0..UNSENT {
            assert_eq!(notices.answered(&other.to_string()), Some(other));
        }
        assert_eq!(notices.answered(&other.to_string()), None);
        assert_eq!(notices.answered(&own.to_string()), Some(own));
        assert_eq!(notices.answered(&own.to_string()), None, "it has a result already");
        assert_eq!(notices.answered("no id"), None);
    }
}
