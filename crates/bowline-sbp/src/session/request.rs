//! A turn that was asked for, in a form that survives a crash.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::id::AgentId;
use crate::message::Message;

/// Who asked, which decides what becomes of a turn that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Someone waits for the answer and will see the error: nothing is stored.
    Http,
    /// Sent over a surface's socket and acknowledged: the log records what became of it.
    Surface,
}

/// A turn that was asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TurnRequest {
    pub model: String,
    /// Every field of the request but `messages`, `sbp` and `stream`, as it came.
    pub params: Vec<(String, Box<RawValue>)>,
    pub messages: Vec<Message>,
    /// The caller reads the answer as it comes.
    #[serde(default)]
    pub stream: bool,
    pub checkpoint_every: u32,
    pub tether: bool,
    pub origin: Origin,
    /// Who takes the turn, if not the session's own agent (SBP-L1-05).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The agent's memory is looked through.
    #[serde(default)]
    pub recall: bool,
    /// The caller asked for memory explicitly.
    #[serde(default)]
    pub remember: bool,
}

impl TurnRequest {
    /// A person's message to a model, with all else as usual. Whoever sent it may be gone when it is
    /// answered: the log says how it ended.
    pub fn message(model: String, message: Message) -> Self {
        let named = to_raw_value(&model).expect("a string serialises");
        Self {
            model,
            params: vec![("model".into(), named)],
            messages: vec![message],
            stream: false,
            checkpoint_every: 1,
            tether: true,
            origin: Origin::Surface,
            agent_id: None,
            recall: true,
            remember: false,
        }
    }

    /// As text, for the store.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and raw JSON always serialise")
    }

    /// Back from the store. The caller is gone, but may come back with the same key and read on.
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// What the last user message says, for readers.
    pub fn question(&self) -> Option<String> {
        let asked = self.messages.iter().rev().find(|message| message.role() == "user")?;
        Some(asked.content())
    }

    /// Whether the caller asked for a count of tokens in the stream.
    pub fn wants_usage(&self) -> bool {
        self.params.iter().any(|(name, _)| name == "stream_options")
    }

    /// A field of the request, as it came.
    pub fn param(&self, wanted: &str) -> Option<&str> {
        self.params.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.get())
    }
}

impl PartialEq for TurnRequest {
    fn eq(&self, other: &Self) -> bool {
        self.to_json() == other.to_json()
    }
}
