//! A person's leave for one call of a tool.
//!
//! Apart, because it decides whether something happens in the world: a call that needs leave is
//! made once, after one person said yes in time, whatever restarts in between. Pure: whoever keeps
//! approvals applies [`State::after`] in one step with writing it down.
//!
//! Invariants
//! - The first verdict counts; a later one changes nothing.
//! - Only an approved call is made, and it is marked as made before it is: after a crash in between
//!   it counts as made, because nobody knows.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{ApprovalId, SessionId, TurnId};

/// Where an approval stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum State {
    /// Nobody has said anything.
    Pending,
    Approved,
    Denied,
    /// Nobody said anything in time, which is a no.
    Expired,
    /// It was approved, and the call was made.
    Used,
}

/// What happens to an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Approve,
    Deny,
    Expire,
    /// The call is about to be made.
    Use,
}

impl State {
    /// The state after a step; none if the step comes too late or too early.
    pub fn after(self, step: Step) -> Option<State> {
        match (self, step) {
            (State::Pending, Step::Approve) => Some(State::Approved),
            (State::Pending, Step::Deny) => Some(State::Denied),
            (State::Pending, Step::Expire) => Some(State::Expired),
            (State::Approved, Step::Use) => Some(State::Used),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Approved => "approved",
            State::Denied => "denied",
            State::Expired => "expired",
            State::Used => "used",
        }
    }

    pub fn named(text: &str) -> Option<Self> {
        [State::Pending, State::Approved, State::Denied, State::Expired, State::Used]
            .into_iter()
            .find(|state| state.as_str() == text)
    }
}

/// One approval, as people and surfaces see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Approval {
    pub approval_id: ApprovalId,
    pub session_id: SessionId,
    /// The turn that wants to make the call.
    pub turn_id: TurnId,
    pub tool_name: String,
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub tool_input: Value,
    pub state: State,
    pub created_at: Timestamp,
    /// Silence until then is a no.
    pub expires_at: Timestamp,
}

impl Approval {
    /// The state after a step at that time: a verdict that comes too late is none.
    pub fn after(&self, step: Step, at: Timestamp) -> Option<State> {
        let late = at >= self.expires_at && step != Step::Use;
        self.state.after(if late { Step::Expire } else { step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_verdict_counts_and_only_an_approved_call_is_made() {
        use State::*;
        let steps = [Step::Approve, Step::Deny, Step::Expire, Step::Use];
        for (state, after) in [
            (Pending, [Some(Approved), Some(Denied), Some(Expired), None]),
            (Approved, [None, None, None, Some(Used)]),
            (Denied, [None; 4]),
            (Expired, [None; 4]),
            (Used, [None; 4]),
        ] {
            assert_eq!(steps.map(|step| state.after(step)), after, "{state:?}");
            assert_eq!(State::named(state.as_str()), Some(state));
        }
    }

    #[test]
    fn a_verdict_after_the_end_is_a_no_and_a_call_that_was_approved_in_time_may_be_made() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut approval = Approval {
            approval_id: ApprovalId(uuid::Uuid::nil()),
            session_id: SessionId(uuid::Uuid::nil()),
            turn_id: TurnId(uuid::Uuid::nil()),
            tool_name: "camera".into(),
            tool_input: Value::Null,
            state: State::Pending,
            created_at: at(0),
            expires_at: at(10),
        };
        assert_eq!(approval.after(Step::Approve, at(9)), Some(State::Approved));
        assert_eq!(approval.after(Step::Approve, at(10)), Some(State::Expired));
        approval.state = State::Approved;
        assert_eq!(approval.after(Step::Use, at(99)), Some(State::Used));
    }
}
