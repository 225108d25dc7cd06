//! A turn request, in the form that is stored when the turn is accepted.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};

use crate::budget::Spender;
use crate::context::{CallerTag, HistoryMode};
use crate::id::{AgentId, UserId};
use crate::message::Message;

/// Where a turn came from, which decides what is stored if it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// An HTTP caller waits for the answer and receives the error: nothing is stored.
    Http,
    /// Sent over a surface's socket and acknowledged: the log records the failure.
    Surface,
}

/// A hash of an HTTP request's credential and body, by which a repeated request is recognised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RequestDigest([u8; 16]);

impl RequestDigest {
    /// The digest of these parts, each with its length.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash: [u8; 32] = hash.finalize().into();
        let mut short = [0; 16];
        short.copy_from_slice(&hash[..16]);
        Self(short)
    }
}

impl std::fmt::Debug for RequestDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RequestDigest(…)")
    }
}

impl From<RequestDigest> for String {
    fn from(digest: RequestDigest) -> Self {
        format!("{:032x}", u128::from_be_bytes(digest.0))
    }
}

impl TryFrom<String> for RequestDigest {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u128::from_str_radix(&text, 16).map(|number| Self(number.to_be_bytes()))
    }
}

/// Somebody with whom a session is shared, who spoke in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    pub user: UserId,
    /// The user's name, which never changes.
    pub name: String,
}

/// A turn request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TurnRequest {
    pub model: String,
    /// Every field of the request except `messages`, `sbp` and `stream`, as raw JSON.
    pub params: Vec<(String, Box<RawValue>)>,
    pub messages: Vec<Message>,
    /// The caller wants the answer as a stream.
    #[serde(default)]
    pub stream: bool,
    pub checkpoint_every: u32,
    pub tether: bool,
    pub origin: Origin,
    /// The agent that takes the turn, if not the session's own agent (SBP-L1-05).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// Search the agent's memory for the turn.
    #[serde(default)]
    pub recall: bool,
    /// The caller asked for memory explicitly.
    #[serde(default)]
    pub remember: bool,
    /// Who sent it over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<CallerTag>,
    /// Who decides what the model is sent; alignment, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryMode>,
    /// For requests over HTTP without an idempotency key: joins a retry to its first request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<RequestDigest>,
    /// Who asked, if it was not the session's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// Tool calls wait for an approval although nobody who may give it is attached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait_for_approval: bool,
    /// Whose budgets it counts for: who sent it. The session's user, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spender: Option<Spender>,
}

impl TurnRequest {
    /// A user message to a model, with default parameters. Its sender may have disconnected before
    /// the answer, so the origin is [`Origin::Surface`]: the log records a failure.
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
            caller: None,
            history: None,
            digest: None,
            author: None,
            wait_for_approval: false,
            spender: None,
        }
    }

    /// As text, for the store.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and raw JSON always serialise")
    }

    /// Parses the text of [`TurnRequest::to_json`].
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The text of the last user message, for display.
    pub fn question(&self) -> Option<String> {
        let asked = self.messages.iter().rev().find(|message| message.role() == "user")?;
        Some(asked.content())
    }

    /// Whether the caller asked for token usage in the stream.
    pub fn wants_usage(&self) -> bool {
        self.params.iter().any(|(name, _)| name == "stream_options")
    }

    /// A field of the request, as raw JSON.
    pub fn param(&self, wanted: &str) -> Option<&str> {
        self.params.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.get())
    }
}

impl PartialEq for TurnRequest {
    fn eq(&self, other: &Self) -> bool {
        self.to_json() == other.to_json()
    }
}
