//! What the model is sent for a turn, and what of a request is new to the log (SBP-L1-11).
//!
//! A caller sends either only its new messages, and the gateway prepends the session's history, or,
//! like most OpenAI clients, the whole conversation as it keeps it: edited, shortened to the last
//! messages, with another system prompt each time. The second kind is recognised by aligning its
//! messages with the log ([`align`]); then the caller's own version goes to the model, with the
//! entries that it never saw in their place, and only what is new goes into the log ([`plan`]).
//!
//! Pure: a plan follows from the log and the request alone, so a turn that is run again after a
//! crash gets the same one.
//!
//! | the request | the model is sent | the log gets |
//! |---|---|---|
//! | new messages only | instruction, history, new messages | the new messages |
//! | a conversation, one of whose assistant messages is in the log | what was sent, and unseen entries in their place | what follows the known part |
//! | examples: assistant messages that are not in the log | instruction, examples, history, new messages | the new messages |
//! | a known conversation and nothing new | what was sent, up to the question | the answer, which supersedes the earlier one |

mod align;
mod key;
mod measure;
mod plan;
mod prompt;
mod request;
mod results;
#[cfg(test)]
mod tests;
mod trim;
mod versions;
mod view;

use serde::{Deserialize, Serialize};

pub use self::key::Key;
pub use self::measure::Measure;
pub use self::plan::{Asked, Plan, plan};
pub use self::trim::{LeftOut, Room, Trimmed, trim};
use crate::frame::TurnStatus;
use crate::id::{Seq, TurnId};
use crate::message::Message;

/// Who sent a turn over HTTP: a hash of the credential and the client's name. What a caller sent
/// and was answered, it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallerTag(pub u64);

/// Who decides what the model is sent: `sbp.history` (*ours*). Without it, alignment decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum HistoryMode {
    /// The caller: the model is sent the request's messages.
    Mine,
    /// The gateway: the model is sent the stored history and the new messages.
    Stored,
}

/// A log entry that models see.
#[derive(Debug, Clone)]
pub struct ContextEntry {
    pub seq: Seq,
    /// The turn that appended it.
    pub turn: TurnId,
    /// None for what came from surfaces, imports and handoffs.
    pub caller: Option<CallerTag>,
    /// The log position of the answer that this entry's turn supersedes.
    pub replaces: Option<Seq>,
    pub message: Message,
    /// An answer that was cancelled or interrupted.
    is_partial: bool,
    key: Key,
    /// The keys of the results that its tool calls are answered with.
    results: Box<[Key]>,
}

impl ContextEntry {
    pub fn new(
        seq: Seq,
        turn: TurnId,
        caller: Option<CallerTag>,
        replaces: Option<Seq>,
        message: Message,
    ) -> Self {
        let key = Key::of(&message);
        let results = Key::of_results(&message);
        Self { seq, turn, caller, replaces, message, is_partial: false, key, results }
    }

    /// The same with the status of its turn; without it, the turn is complete.
    pub fn with_status(self, status: TurnStatus) -> Self {
        Self { is_partial: status != TurnStatus::Complete, ..self }
    }

    fn is_system(&self) -> bool {
        is_system(&self.message)
    }

    /// Whether it is an answer that callers got.
    fn is_answer(&self) -> bool {
        is_assistant(&self.message) && !self.message.is_hidden()
    }
}

/// The part of a session's log that models see.
#[derive(Debug, Clone, Default)]
pub struct SessionLog {
    /// The session's current instruction, if it differs from the system messages in the log.
    pub instruction: Option<Vec<Message>>,
    pub entries: Vec<ContextEntry>,
}

/// `developer` is the newer name of the same role.
fn is_system(message: &Message) -> bool {
    matches!(message.role(), "system" | "developer")
}

fn is_result(message: &Message) -> bool {
    message.role() == "tool"
}

fn is_assistant(message: &Message) -> bool {
    message.role() == "assistant"
}
