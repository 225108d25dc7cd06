//! A session as it travels: the bundle, sealed by its content id.
//!
//! One type for both ways: [`Contents::seal`] makes the text of a bundle, [`Contents::open`] checks
//! its content id and takes it apart (SBP-L3-03, SBP-L3-05). What this house has no place for is
//! not dropped but carried: unknown fields, memory of other makes, a stranger's snapshot, and
//! number spellings go into `carried` on the way in and back to their places on the way out.
//!
//! Invariants
//! - Opening what was sealed and sealing it again says the same, byte for byte in its canonical
//!   form, but for what names the export itself.
//! - Nothing is read before the content id has been checked.

mod open;
mod seal;

pub use self::open::{FOR_MODELS, is_strict};

use jiff::Timestamp;

use crate::cid::Cid;
use crate::error::{Code, Failure};
use crate::frame::TurnStatus;
use crate::id::AgentId;
use crate::message::{EntryKind, Message};
use bowline_pyjson::ParseError;

/// The bundle format that is written. Any of the same major version is read.
pub const BUNDLE_VERSION: &str = "1.0";
/// The kind of memory that agents have here.
pub const MEMORY_SCHEMA: &str = "urn:bowline:memory:1";
/// The longest text of one memory, in bytes.
pub const LONGEST_MEMORY: usize = 4096;
/// The longest label, in characters, and the longest names of things that a bundle may bring.
const LONGEST_LABEL: usize = 120;
const LONGEST_NAME: usize = 256;
/// The most a session's metadata may take: it is written anew with every turn.
pub const LARGEST_METADATA: usize = 16 << 10;
/// The member in which a bundle keeps what only this house understands.
const OURS: &str = "bowline";

/// What a bundle says, in our words.
#[derive(Debug, Clone)]
pub struct Contents {
    pub export_id: String,
    pub exported_at: Timestamp,
    pub label: Option<String>,
    pub session: SessionPart,
    /// Oldest first.
    pub messages: Vec<MessagePart>,
    /// What the agent remembers; none if the bundle's memory is of another make, or missing.
    pub memory: Option<Vec<MemoryPart>>,
    pub snapshot: Option<SnapshotPart>,
    /// Everything else, as JSON: an object with the bundle's own structure.
    pub carried: Option<String>,
}

/// The session a bundle was made of.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPart {
    /// Its name where it came from; often, but not everywhere, a UUID.
    pub id: String,
    pub agent: String,
    pub status: String,
    pub last_task: Option<String>,
    pub created_at: Timestamp,
    pub step_count: u64,
    /// What its owner noted on it: a JSON object.
    pub metadata: Option<String>,
}

/// One entry of its log.
#[derive(Debug, Clone)]
pub struct MessagePart {
    pub kind: EntryKind,
    /// What a model may see of it.
    pub message: Message,
    pub model: Option<String>,
    pub cost_usd: f64,
    pub created_at: Timestamp,
    pub status: TurnStatus,
    pub agent_id: Option<AgentId>,
    /// The other fields, as a JSON object.
    pub carried: Option<String>,
}

/// One thing its agent remembers.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryPart {
    /// `semantic`, `episodic` or `procedural`.
    pub kind: String,
    pub text: String,
    pub created_at: Timestamp,
}

/// The point from which it can be taken up.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotPart {
    pub id: String,
    pub kind: String,
    pub seq: u64,
    pub at: Timestamp,
}

/// A bundle, ready to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub cid: Cid,
    /// The bundle's JSON, with its content id in it.
    pub text: String,
}

/// Why a text is not a bundle that can be taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the bundle cannot be read: {0}")]
    NotJson(ParseError),
    #[error("the bundle has no `bundle_cid`, so nobody can say whether it was changed")]
    NoCid,
    #[error("the bundle's content is not what its `bundle_cid` says: it was changed on the way")]
    WrongCid,
    #[error("the bundle is of version {0}, and this gateway reads version 1")]
    Version(String),
    #[error("{0}")]
    Malformed(String),
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let code = match &error {
            OpenError::NoCid | OpenError::WrongCid => Code::TokenIntegrity,
            OpenError::NotJson(_) => Code::MalformedRequest,
            OpenError::Version(_) | OpenError::Malformed(_) => Code::InvalidRequest,
        };
        Failure::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests;
