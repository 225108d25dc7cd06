//! What the model does, one thing after another.

use serde_json::Value;

/// One thing that the model does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Act {
    /// Says this, in one piece.
    Say(String),
    /// Waits until the check opens the gate.
    Hold,
    /// Calls the offered tool whose name contains `tool`.
    Call { tool: String, input: Value },
    /// Breaks the connection off.
    BreakOff,
    /// Refuses with this status, before anything was said.
    Fail(u16),
}

impl Act {
    pub(crate) fn say(text: impl Into<String>) -> Self {
        Act::Say(text.into())
    }

    /// What is said, if anything.
    pub(crate) fn said(&self) -> Option<&str> {
        match self {
            Act::Say(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn call(tool: &str, input: Value) -> Self {
        Act::Call { tool: tool.to_owned(), input }
    }
}
