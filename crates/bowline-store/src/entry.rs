//! One entry of a session's log.

use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{AgentId, Seq, TurnId};
use bowline_sbp::message::{EntryKind, Message};
use jiff::Timestamp;

/// An entry of the log.
#[derive(Debug, Clone)]
pub struct Entry {
    pub seq: Seq,
    pub kind: EntryKind,
    /// The turn that appended it.
    pub turn_id: TurnId,
    pub message: Message,
    pub model: Option<String>,
    pub cost_usd: f64,
    pub status: TurnStatus,
    /// The session's step count after it.
    pub step: u64,
    pub tethered: bool,
    /// The agent that took the turn, if not the session's own agent.
    pub agent_id: Option<AgentId>,
    /// The name of who said it, if it was not the session's user.
    pub author: Option<String>,
    /// The position of the answer that its turn's answer supersedes.
    pub replaces: Option<Seq>,
    /// Fields of an imported message that are not for a model: a JSON object.
    pub carried: Option<String>,
    pub created_at: Timestamp,
}
