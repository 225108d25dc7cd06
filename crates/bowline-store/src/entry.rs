//! One entry of a session's log.

use bowline_sbp::delivery::LoggedTurn;
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{Seq, TurnId};
use bowline_sbp::message::Message;
use jiff::Timestamp;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// What a caller said: user, system, tool result.
    Message,
    /// What the agent said.
    Turn,
    /// What the gateway has to say to the reader; the model never sees it.
    Note,
}

impl EntryKind {
    pub fn as_str(self) -> &'static str {
        match self {
            EntryKind::Message => "message",
            EntryKind::Turn => "turn",
            EntryKind::Note => "note",
        }
    }
}

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
}

impl NewEntry {
    /// A caller's message.
    pub fn message(message: Message) -> Self {
        Self {
            kind: EntryKind::Message,
            message,
            model: None,
            cost_usd: 0.0,
            status: TurnStatus::Complete,
            tethered: false,
        }
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
    pub created_at: Timestamp,
}

impl From<Entry> for LoggedTurn {
    fn from(entry: Entry) -> Self {
        LoggedTurn {
            seq: entry.seq,
            turn_id: entry.turn_id,
            role: entry.message.role().to_owned(),
            content: entry.message.content(),
            model: entry.model,
            created_at: entry.created_at,
            step_count: entry.step,
            status: entry.status,
        }
    }
}
