//! The bundle: an exported session, protected by its content id.
//!
//! One type for both directions: [`Contents::seal`] writes a bundle, [`Contents::open`] checks its
//! content id and parses it (SBP-L3-03, SBP-L3-05). What this implementation cannot represent is
//! not dropped: unknown fields, memory in other formats, foreign snapshots and number spellings are
//! kept in `carried` on import and restored on export.
//!
//! Invariants
//! - Opening a sealed bundle and sealing it again gives the same canonical bytes, except for the
//!   fields that identify the export.
//! - No field is used before the content id has been checked.
//! - [`Contents::open`] gives nothing of a bundle whose signature is broken.

mod memory;
mod open;
mod seal;
mod signature;

pub use self::open::{FOR_MODELS, Opened, is_strict};
pub use self::signature::{BundleSignature, RequiredSignature};

use jiff::Timestamp;

use crate::cid::Cid;
use crate::error::{Code, Failure};
use crate::frame::TurnStatus;
use crate::gateway_key::KeyFingerprint;
use crate::id::AgentId;
use crate::message::{EntryKind, Message};
use bowline_pyjson::ParseError;

/// The bundle version that is written. Any with the same major version can be read.
pub const BUNDLE_VERSION: &str = "1.0";
/// The schema id of this implementation's memory.
pub const MEMORY_SCHEMA: &str = "urn:bowline:memory:1";
/// The longest text of one memory, in bytes.
pub const LONGEST_MEMORY: usize = 4096;
/// The longest label, in characters.
const LONGEST_LABEL: usize = 120;
/// The longest export id, in characters.
const LONGEST_NAME: usize = 256;
/// The largest session metadata, in bytes: it is rewritten with every turn.
pub const LARGEST_METADATA: usize = 16 << 10;
/// The member of a bundle that holds data specific to this implementation.
const OURS: &str = "bowline";

/// The parsed contents of a bundle.
#[derive(Debug, Clone)]
pub struct Contents {
    pub export_id: String,
    pub exported_at: Timestamp,
    pub label: Option<String>,
    pub session: SessionPart,
    /// Oldest first.
    pub messages: Vec<MessagePart>,
    /// The agent's memory; none if it is missing or in another format.
    pub memory: Option<Vec<MemoryPart>>,
    pub snapshot: Option<SnapshotPart>,
    /// Everything else: a JSON object with the structure of the bundle.
    pub carried: Option<String>,
}

/// The exported session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPart {
    /// Its id at the source; often, but not always, a UUID.
    pub id: String,
    pub agent: String,
    pub status: String,
    pub last_task: Option<String>,
    pub created_at: Timestamp,
    pub step_count: u64,
    /// The session's metadata: a JSON object.
    pub metadata: Option<String>,
    /// The session's current instruction, if it is another than the system messages in its log.
    pub instruction: Option<Vec<Message>>,
}

/// One log entry of the exported session.
#[derive(Debug, Clone)]
pub struct MessagePart {
    pub kind: EntryKind,
    /// The fields that may be sent to a model.
    pub message: Message,
    pub model: Option<String>,
    pub cost_usd: f64,
    pub created_at: Timestamp,
    pub status: TurnStatus,
    pub agent_id: Option<AgentId>,
    /// The place in `messages`, counted from 1, of the answer that this one supersedes.
    pub replaces: Option<u64>,
    /// The other fields, as a JSON object.
    pub carried: Option<String>,
}

/// One memory of the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryPart {
    /// `semantic`, `episodic` or `procedural`.
    pub kind: String,
    pub text: String,
    pub created_at: Timestamp,
}

/// The snapshot to resume from.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotPart {
    pub id: String,
    pub kind: String,
    pub seq: u64,
    pub at: Timestamp,
}

/// A bundle with its content id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub cid: Cid,
    /// The bundle's JSON, with its content id in it.
    pub text: String,
    /// Whether there is memory in it, in whatever format.
    pub with_memory: bool,
}

/// Why a bundle cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the bundle cannot be read: {0}")]
    NotJson(ParseError),
    #[error("the bundle has no `bundle_cid`, so its integrity cannot be checked")]
    NoCid,
    #[error("the bundle does not match its `bundle_cid`: it was changed after the export")]
    WrongCid,
    #[error("the bundle's signature is broken: it was changed after its gateway signed it")]
    BrokenSignature,
    #[error("the bundle is not signed, and a signature is required")]
    Unsigned,
    #[error("the bundle is signed by another gateway than the required one: {0}")]
    OtherSigner(KeyFingerprint),
    #[error("the bundle is of version {0}, and this gateway reads version 1")]
    Version(String),
    #[error("{0}")]
    Malformed(String),
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let code = match &error {
            OpenError::NoCid
            | OpenError::WrongCid
            | OpenError::BrokenSignature
            | OpenError::Unsigned
            | OpenError::OtherSigner(_) => Code::TokenIntegrity,
            OpenError::NotJson(_) => Code::MalformedRequest,
            OpenError::Version(_) | OpenError::Malformed(_) => Code::InvalidRequest,
        };
        Failure::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests;
