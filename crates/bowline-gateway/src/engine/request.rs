//! A turn that was asked for, in a form that survives a crash.

use bowline_sbp::id::AgentId;
use bowline_sbp::message::Message;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Who asked, which decides what becomes of a turn that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Origin {
    /// Someone waits for the answer and will see the error: nothing is stored.
    Http,
    /// Sent over a surface's socket and acknowledged: the log records what became of it.
    Surface,
}

/// A turn that was asked for.
#[derive(Debug, Clone)]
pub(crate) struct TurnRequest {
    pub model: String,
    /// Every field of the request but `messages`, `sbp` and `stream`, as it came.
    pub params: Vec<(String, Box<RawValue>)>,
    pub messages: Vec<Message>,
    /// The caller reads the answer as it comes.
    pub stream: bool,
    pub checkpoint_every: u32,
    pub tether: bool,
    pub origin: Origin,
    /// Who takes the turn, if not the session's own agent (SBP-L1-05).
    pub agent_id: Option<AgentId>,
    /// The agent's memory is looked through.
    pub recall: bool,
    /// The caller asked for memory in so many words.
    pub remember: bool,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    model: String,
    params: Vec<(String, Box<RawValue>)>,
    messages: Vec<Box<RawValue>>,
    #[serde(default)]
    stream: bool,
    checkpoint_every: u32,
    tether: bool,
    origin: Origin,
    #[serde(default)]
    agent_id: Option<String>,
    #[serde(default)]
    recall: bool,
    #[serde(default)]
    remember: bool,
}

impl TurnRequest {
    /// The caller waits, and wants to hear nothing before the whole answer is there.
    pub(super) fn waits_for_all(&self) -> bool {
        self.origin == Origin::Http && !self.stream
    }

    /// As text, for the store.
    pub(super) fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Borrowed<'a> {
            model: &'a str,
            params: &'a [(String, Box<RawValue>)],
            messages: &'a [Message],
            stream: bool,
            checkpoint_every: u32,
            tether: bool,
            origin: Origin,
            #[serde(skip_serializing_if = "Option::is_none")]
            agent_id: Option<&'a AgentId>,
            recall: bool,
            remember: bool,
        }
        let stored = Borrowed {
            model: &self.model,
            params: &self.params,
            messages: &self.messages,
            stream: self.stream,
            checkpoint_every: self.checkpoint_every,
            tether: self.tether,
            origin: self.origin,
            agent_id: self.agent_id.as_ref(),
            recall: self.recall,
            remember: self.remember,
        };
        serde_json::to_string(&stored).expect("strings and raw JSON always serialise")
    }

    /// Back from the store. The caller is gone, but may come back with the same key and read on.
    pub(super) fn from_json(text: &str) -> Option<Self> {
        let stored: Stored = serde_json::from_str(text).ok()?;
        let messages = stored.messages.into_iter().map(Message::read).collect::<Result<_, _>>();
        Some(Self {
            model: stored.model,
            params: stored.params,
            messages: messages.ok()?,
            stream: stored.stream,
            checkpoint_every: stored.checkpoint_every,
            tether: stored.tether,
            origin: stored.origin,
            agent_id: stored.agent_id.and_then(|agent| agent.parse().ok()),
            recall: stored.recall,
            remember: stored.remember,
        })
    }

    /// Whether the caller asked for a count of tokens in the stream.
    pub(super) fn wants_usage(&self) -> bool {
        self.params.iter().any(|(name, _)| name == "stream_options")
    }

    /// Whether the caller brings a tool of that name itself, or says which tool to use.
    pub(super) fn speaks_of_tool(&self, name: &str) -> bool {
        let choice = self.param("tool_choice");
        choice.is_some_and(|choice| choice != "\"auto\"" && choice != "null")
            || self.brings_tools(&format!("{name}\""))
    }

    /// Whether the caller brings tools itself whose names begin like that.
    pub(super) fn brings_tools(&self, prefix: &str) -> bool {
        self.param("tools").is_some_and(|tools| tools.contains(&format!("\"{prefix}")))
    }

    fn param(&self, wanted: &str) -> Option<&str> {
        self.params.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_storage_to_the_byte() {
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        let message = r#"{"role":"user", "content":"é\ud800", "n":1E400}"#;
        let request = TurnRequest {
            model: "m".into(),
            params: vec![("seed".into(), raw("12345678901234567890123"))],
            messages: vec![Message::read(raw(message)).unwrap()],
            stream: true,
            checkpoint_every: 3,
            tether: false,
            origin: Origin::Surface,
            agent_id: Some("a".parse().unwrap()),
            recall: true,
            remember: true,
        };
        let back = TurnRequest::from_json(&request.to_json()).unwrap();
        assert_eq!(back.messages[0].as_json(), message);
        assert_eq!(back.params[0].1.get(), "12345678901234567890123");
        assert_eq!((back.checkpoint_every, back.tether), (3, false));
        assert_eq!(back.agent_id, request.agent_id);
        assert!(back.recall && back.remember);
        assert!(back.stream, "a caller who retries reads the stream of the turn that goes on");
        assert!(TurnRequest::from_json("{}").is_none());
    }
}
