//! A person's approval of one tool call.
//!
//! Apart, because it guards side effects: a call that needs approval is made at most once, and only
//! after it was approved in time, whatever restarts in between. Pure: the session machine applies
//! [`ApprovalState::after`] and stores the new state in the same commit.
//!
//! Invariants
//! - The first decision counts; a later one changes nothing.
//! - Only an approved call is made, and the approval is marked as used before the call: after a
//!   crash in between the call counts as made, because its outcome is unknown.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{ApprovalId, SessionId, TurnId, UserId};

/// The state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ApprovalState {
    /// Not decided yet.
    Pending,
    Approved,
    Denied,
    /// Not decided in time; counts as denied.
    Expired,
    /// Approved, and the tool call was made.
    Used,
}

/// When a call that needs an approval is refused at once. `attached`: if nobody who may approve is
/// attached. `wait`: never; it waits until it is decided or expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ApprovalsMode {
    #[default]
    Attached,
    Wait,
}

/// An event that may change the state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalStep {
    Approve,
    Deny,
    Expire,
    /// The call is about to be made.
    Use,
}

impl ApprovalState {
    /// The state after a step; none if the step is not possible in this state.
    pub fn after(self, step: ApprovalStep) -> Option<ApprovalState> {
        match (self, step) {
            (ApprovalState::Pending, ApprovalStep::Approve) => Some(ApprovalState::Approved),
            (ApprovalState::Pending, ApprovalStep::Deny) => Some(ApprovalState::Denied),
            (ApprovalState::Pending, ApprovalStep::Expire) => Some(ApprovalState::Expired),
            (ApprovalState::Approved, ApprovalStep::Use) => Some(ApprovalState::Used),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            ApprovalState::Pending => "pending",
            ApprovalState::Approved => "approved",
            ApprovalState::Denied => "denied",
            ApprovalState::Expired => "expired",
            ApprovalState::Used => "used",
        }
    }

    pub fn named(text: &str) -> Option<Self> {
        [
            ApprovalState::Pending,
            ApprovalState::Approved,
            ApprovalState::Denied,
            ApprovalState::Expired,
            ApprovalState::Used,
        ]
        .into_iter()
        .find(|state| state.as_str() == text)
    }
}

/// A request to approve one tool call, and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Approval {
    pub approval_id: ApprovalId,
    pub session_id: SessionId,
    /// The turn that makes the tool call.
    pub turn_id: TurnId,
    pub tool_name: String,
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub tool_input: Value,
    pub state: ApprovalState,
    pub created_at: Timestamp,
    /// Without a decision until then, the call is not made.
    pub expires_at: Timestamp,
    /// The device that the call would go to, by its `surface_id`. Absent: a server's tool, or a device
    /// without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The tool's definition is another one than the one that was allowed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<DefinitionChange>,
    /// Whoever asked for the turn may not approve it: another user has to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub second_person: bool,
    /// Who asked for the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<UserId>,
    /// The key with which an MCP host made the call: it does not decide on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_with: Option<String>,
    /// Who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionRecord>,
}

/// What is said of a tool, before and now: JSON text of its description and input schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DefinitionChange {
    pub before: String,
    pub now: String,
}

/// Who decided on an approval, when, and from where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DecisionRecord {
    #[serde(flatten)]
    pub by: Decider,
    pub at: Timestamp,
    /// It also allows later calls of the tool by the same device in this session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub always: bool,
}

/// A person who decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Decider {
    pub user: UserId,
    /// The id of their key, or what else they showed: `local`, `configured`.
    pub credential: String,
    /// The address that they decided from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

impl Approval {
    /// A pending request that expires at once, and that nothing more is known of.
    pub fn new(
        approval_id: ApprovalId,
        session_id: SessionId,
        turn_id: TurnId,
        tool_name: String,
        tool_input: Value,
        created_at: Timestamp,
    ) -> Self {
        Self {
            approval_id,
            session_id,
            turn_id,
            tool_name,
            tool_input,
            state: ApprovalState::Pending,
            created_at,
            expires_at: created_at,
            device: None,
            changed: None,
            second_person: false,
            asked_by: None,
            asked_with: None,
            decision: None,
        }
    }

    /// The state after a step at that time: a decision after `expires_at` counts as expiry.
    pub fn after(&self, step: ApprovalStep, at: Timestamp) -> Option<ApprovalState> {
        let late = at >= self.expires_at && step != ApprovalStep::Use;
        self.state.after(if late { ApprovalStep::Expire } else { step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_verdict_counts_and_only_an_approved_call_is_made() {
        use ApprovalState::*;
        let steps =
            [ApprovalStep::Approve, ApprovalStep::Deny, ApprovalStep::Expire, ApprovalStep::Use];
        for (state, after) in [
            (Pending, [Some(Approved), Some(Denied), Some(Expired), None]),
            (Approved, [None, None, None, Some(Used)]),
            (Denied, [None; 4]),
            (Expired, [None; 4]),
            (Used, [None; 4]),
        ] {
            assert_eq!(steps.map(|step| state.after(step)), after, "{state:?}");
            assert_eq!(ApprovalState::named(state.as_str()), Some(state));
        }
    }

    #[test]
    fn a_verdict_after_the_end_is_a_no_and_a_call_that_was_approved_in_time_may_be_made() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut approval = Approval {
            expires_at: at(10),
            ..Approval::new(
                ApprovalId(uuid::Uuid::nil()),
                SessionId(uuid::Uuid::nil()),
                TurnId(uuid::Uuid::nil()),
                "camera".into(),
                Value::Null,
                at(0),
            )
        };
        assert_eq!(approval.after(ApprovalStep::Approve, at(9)), Some(ApprovalState::Approved));
        assert_eq!(approval.after(ApprovalStep::Approve, at(10)), Some(ApprovalState::Expired));
        approval.state = ApprovalState::Approved;
        assert_eq!(approval.after(ApprovalStep::Use, at(99)), Some(ApprovalState::Used));
    }
}
