//! Questions whether a tool may be called, as the store sees them.

use bowline_sbp::id::{ApprovalId, Seq, SessionId, TurnId};
use jiff::Timestamp;
use serde_json::Value;

/// A call that needs a person's leave.
#[derive(Debug, Clone)]
pub struct NewApproval {
    pub id: ApprovalId,
    pub session_id: SessionId,
    pub turn_id: TurnId,
    /// Which call it is: the log position where calls are on record, and the how-manieth there. A
    /// model may give two calls of a turn the same id.
    pub place: (Seq, u32),
    pub tool: String,
    pub input: Value,
    pub at: Timestamp,
    pub expires_at: Timestamp,
}
