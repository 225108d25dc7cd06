//! The lifecycle of a session: five states and the transitions between them (SBP-L2-13).
//!
//! Apart, because every crate has to agree which transitions are allowed. Pure: a state and a
//! change give the next state or an error.
//!
//! A session stays `running` between turns. It becomes `suspended` when its last attached surface
//! disconnects, never merely because no surface ever attached (SBP-L2-15).

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The status of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Status {
    /// Created, no turn yet.
    Idle,
    /// Has taken a turn and accepts more.
    Running,
    /// Its surface disconnected; a running turn continues, a caller must resume it explicitly.
    Suspended,
    /// Ended successfully. Accepts no more turns.
    Completed,
    /// Ended with a failure. Accepts no more turns.
    Failed,
}

/// An event that may change the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A turn was accepted.
    TurnTaken,
    /// The last attached surface detached or disconnected.
    SurfaceLost,
    /// A surface attached.
    SurfaceAttached,
    /// The caller named the session in a request in order to resume it.
    Resumed,
    /// The status was set to `suspended` by request.
    Suspend,
    /// The status was set to `completed` by request.
    Complete,
    /// The status was set to `failed` by request.
    Fail,
}

/// A transition that the lifecycle does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("this change of status is not allowed: the session is {from}")]
pub struct IllegalChange {
    pub from: Status,
    pub change: Change,
}

impl Status {
    /// The next status. A change without meaning in this status leaves it as it is; one that the
    /// protocol forbids is an error.
    pub fn after(self, change: Change) -> Result<Status, IllegalChange> {
        use Change::*;
        use Status::*;
        let refused = Err(IllegalChange { from: self, change });
        match (self, change) {
            (Idle, TurnTaken) => Ok(Running),
            (Idle, SurfaceLost | SurfaceAttached | Resumed) => Ok(Idle),

            (Running, SurfaceLost | Suspend) => Ok(Suspended),
            (Running, TurnTaken | SurfaceAttached | Resumed) => Ok(Running),

            (Suspended, SurfaceAttached | Resumed) => Ok(Running),
            // A turn that was running when the surface disconnected does not resume the session.
            (Suspended, TurnTaken | SurfaceLost | Suspend) => Ok(Suspended),

            // The protocol ends only running sessions: an idle or suspended one counts as started
            // or resumed first.
            (Idle | Running | Suspended, Complete) => Ok(Completed),
            (Idle | Running | Suspended, Fail) => Ok(Failed),
            (Idle, Suspend) => Ok(Suspended),

            // Surfaces may still attach to an ended session, to read it.
            (Completed, SurfaceAttached | SurfaceLost | Complete) => Ok(Completed),
            (Failed, SurfaceAttached | SurfaceLost | Fail) => Ok(Failed),
            (Completed | Failed, _) => refused,
        }
    }

    /// Whether the session accepts more turns.
    pub fn is_open(self) -> bool {
        !matches!(self, Status::Completed | Status::Failed)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Status::Idle => "idle",
            Status::Running => "running",
            Status::Suspended => "suspended",
            Status::Completed => "completed",
            Status::Failed => "failed",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a status is one of idle, running, suspended, completed, failed")]
pub struct UnknownStatus;

impl FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<Self, UnknownStatus> {
        [Status::Idle, Status::Running, Status::Suspended, Status::Completed, Status::Failed]
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or(UnknownStatus)
    }
}

#[cfg(test)]
mod tests {
    use super::Change::*;
    use super::Status::*;
    use super::*;

    const STATES: [Status; 5] = [Idle, Running, Suspended, Completed, Failed];
    const CHANGES: [Change; 7] =
        [TurnTaken, SurfaceLost, SurfaceAttached, Resumed, Suspend, Complete, Fail];

    #[test]
    fn sbp_l2_13_the_protocols_transitions_hold() {
        for (from, change, to) in [
            (Idle, TurnTaken, Running),
            (Running, SurfaceLost, Suspended),
            (Suspended, SurfaceAttached, Running),
            (Suspended, Resumed, Running),
            (Running, Complete, Completed),
            (Running, Fail, Failed),
            (Suspended, Fail, Failed),
        ] {
            assert_eq!(from.after(change), Ok(to), "{from} after {change:?}");
        }
    }

    #[test]
    fn sbp_l2_13_no_state_changes_in_a_way_the_protocol_does_not_name() {
        // Additions to the protocol's list: ending an idle or suspended session, which combines two
        // transitions, and `Suspend` of an idle one.
        let named = [
            (Idle, Running),
            (Running, Suspended),
            (Suspended, Running),
            (Running, Completed),
            (Running, Failed),
            (Suspended, Failed),
            (Idle, Completed),
            (Idle, Failed),
            (Suspended, Completed),
            (Idle, Suspended),
        ];
        for from in STATES {
            for change in CHANGES {
                if let Ok(to) = from.after(change) {
                    assert!(from == to || named.contains(&(from, to)), "{from} -> {to}");
                }
            }
        }
    }

    #[test]
    fn sbp_l2_15_a_surface_that_leaves_an_idle_session_suspends_nothing() {
        assert_eq!(Idle.after(SurfaceAttached), Ok(Idle));
        assert_eq!(Idle.after(SurfaceLost), Ok(Idle));
    }

    #[test]
    fn an_ended_session_takes_no_turn() {
        for from in [Completed, Failed] {
            for change in [TurnTaken, Resumed, Suspend] {
                assert_eq!(from.after(change), Err(IllegalChange { from, change }));
            }
        }
    }

    #[test]
    fn names_read_back() {
        for status in STATES {
            assert_eq!(status.as_str().parse(), Ok(status));
        }
        assert_eq!("active".parse::<Status>(), Err(UnknownStatus));
    }
}
