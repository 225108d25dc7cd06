//! What an agent remembers beyond its sessions: facts and notes, found again by their words.

use bowline_sbp::id::{MemoryId, SessionId};
use jiff::Timestamp;

/// What kind of thing is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Something that is so: "the user's cat is called Ada".
    Semantic,
    /// Something that happened: "we moved the server in May".
    Episodic,
    /// How something is done: "answer in French; run the tests before you commit".
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

/// Something to be remembered. The same words of the same kind are remembered once.
#[derive(Debug, Clone)]
pub struct NewMemory {
    pub id: MemoryId,
    pub kind: MemoryKind,
    pub text: String,
    /// Where it was learnt.
    pub session_id: Option<SessionId>,
    pub at: Timestamp,
}

/// What an agent remembers that may help it with a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnMemories {
    /// Procedural memories, oldest first: later rules build on earlier ones.
    pub rules: Vec<Memory>,
    /// What has to do with the words of the question, best first.
    pub matching: Vec<Memory>,
    pub newest: Vec<Memory>,
}

/// Something remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub id: MemoryId,
    pub kind: MemoryKind,
    pub text: String,
    pub session_id: Option<SessionId>,
    pub created_at: Timestamp,
}
