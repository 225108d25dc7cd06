//! An agent's memory across sessions: short texts, found by full-text search.

use bowline_sbp::id::{AgentId, MemoryId, SessionId, UserId};
use jiff::Timestamp;

/// The most memories of one agent.
pub(crate) const MOST: u32 = 10_000;

/// Whose memories: the same name of an agent is another agent for each user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryOwner {
    pub user: UserId,
    pub agent: AgentId,
}

/// The kind of a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// A fact: "the user's cat is called Ada".
    Semantic,
    /// An event: "we moved the server in May".
    Episodic,
    /// A rule or steps to follow: "answer in French; run the tests before you commit".
    Procedural,
}

impl MemoryKind {
    pub fn as_str(self) -> &'static str {
        match self {
            MemoryKind::Semantic => "semantic",
            MemoryKind::Episodic => "episodic",
            MemoryKind::Procedural => "procedural",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [MemoryKind::Semantic, MemoryKind::Episodic, MemoryKind::Procedural]
            .into_iter()
            .find(|kind| kind.as_str() == name)
    }
}

/// A memory to be stored. The same text of the same kind is stored once.
#[derive(Debug, Clone)]
pub struct NewMemory {
    pub id: MemoryId,
    pub kind: MemoryKind,
    pub text: String,
    /// The session in which it was stored.
    pub session_id: Option<SessionId>,
    pub at: Timestamp,
}

/// The memories of an agent for one turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnMemories {
    /// Procedural memories, oldest first: later rules build on earlier ones.
    pub rules: Vec<Memory>,
    /// Memories that match the words of the user message, best first.
    pub matching: Vec<Memory>,
    pub newest: Vec<Memory>,
}

/// A stored memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub id: MemoryId,
    pub kind: MemoryKind,
    pub text: String,
    pub session_id: Option<SessionId>,
    pub created_at: Timestamp,
}
