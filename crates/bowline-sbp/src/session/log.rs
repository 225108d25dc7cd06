//! Entries to be appended to a session's log.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::blob::Blob;
use crate::context::CallerTag;
use crate::frame::TurnStatus;
use crate::id::{AgentId, Seq, TurnId};
use crate::media::take_out;
use crate::message::{EntryKind, Message};

/// An entry to be appended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewEntry {
    pub kind: EntryKind,
    pub message: Message,
    pub model: Option<String>,
    pub cost_usd: f64,
    pub status: TurnStatus,
    /// Whether it is queued in the Tether for delivery to surfaces.
    pub tethered: bool,
    /// Who took the turn, if not the session's own agent.
    pub agent_id: Option<AgentId>,
    /// Fields of an imported message that are not for a model: a JSON object.
    pub carried: Option<String>,
    /// Who sent the turn over HTTP.
    #[serde(default)]
    pub caller: Option<CallerTag>,
    /// The name of who said it, if it was not the session's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The log position of the answer that this turn's answer supersedes: on the turn's first entry.
    #[serde(default)]
    pub replaces: Option<Seq>,
    /// The session's instruction from this entry on, if it becomes another one.
    #[serde(default)]
    pub instruction: Option<Vec<Message>>,
    /// Blobs that its message refers to, unless the session has them already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<Blob>,
}

impl NewEntry {
    /// About how many bytes of text it stores.
    pub(super) fn bytes(&self) -> usize {
        let carried = self.carried.as_ref().map_or(0, String::len);
        let instruction = self.instruction.iter().flatten();
        let said = instruction.chain([&self.message]).map(|message| message.as_json().len());
        carried + said.sum::<usize>()
    }

    /// An entry of that kind with default values.
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
            caller: None,
            author: None,
            replaces: None,
            instruction: None,
            blobs: Vec::new(),
        }
    }

    /// A caller's message.
    pub fn message(message: Message) -> Self {
        Self::new(EntryKind::Message, message)
    }

    /// An entry of that kind, whose large blobs are taken out of its message.
    pub fn with_blobs(kind: EntryKind, message: Message) -> Self {
        let (message, blobs) = take_out(message);
        Self { blobs, ..Self::new(kind, message) }
    }
}

/// An entry with its log position, which only the session's owner assigns (G1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    pub seq: Seq,
    pub turn_id: TurnId,
    /// The session's step count after it.
    pub step: u64,
    /// The number of this Tether turn in its session, counted from 1; none if not tethered.
    pub tether_no: Option<u64>,
    pub at: Timestamp,
    pub entry: NewEntry,
}
