//! One entry of a session's log.

use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{AgentId, Seq, TurnId};
use bowline_sbp::message::{EntryKind, Message};
use jiff::Timestamp;

/// An entry to be appended. Its position is given by the store (G1).
#[derive(Debug, Clone)]
pub struct NewEntry {
    pub kind: EntryKind,
    pub message: Message,
    pub model: Option<String>,
    pub cost_usd: f64,
    pub status: TurnStatus,
    /// Whether it waits in the Tether for a surface.
    pub tethered: bool,
    /// Who took the turn, if not the session's own agent.
    pub agent_id: Option<AgentId>,
    /// Fields of an imported message that are not for a model: a JSON object.
    pub carried: Option<String>,
}

impl NewEntry {
    /// An entry of that kind with nothing particular about it.
    pub fn new(kind: EntryKind, message: Message) -> Self {
        Self {
            kind,
            message,
            model: None,
            cost_usd: 0.0,
            status: TurnStatus::Complete,
            tethered: false,
            agent_id: None,
            carried: None,
        }
    }

    /// A caller's message.
    pub fn message(message: Message) -> Self {
        Self::new(EntryKind::Message, message)
    }
}

/// An entry of the log.
#[derive(Debug, Clone)]
pub struct Entry {
    pub seq: Seq,
    pub kind: EntryKind,
    /// The turn that made it.
    pub turn_id: TurnId,
    pub message: Message,
    pub model: Option<String>,
    pub cost_usd: f64,
    pub status: TurnStatus,
    /// The session's step count after it.
    pub step: u64,
    pub tethered: bool,
    /// Who took the turn, if not the session's own agent.
    pub agent_id: Option<AgentId>,
    /// Fields of an imported message that are not for a model: a JSON object.
    pub carried: Option<String>,
    pub created_at: Timestamp,
}
