//! Sessions that leave, arrive, split and change hands, as the store sees them.

use bowline_sbp::id::{ExportId, Seq, SessionId, SnapshotId, TurnId};
use bowline_sbp::session::{IdempotencyKey, NewEntry, NewSession, TokenHash, Tokens};
use jiff::Timestamp;

use crate::entry::Entry;
use crate::memory::NewMemory;
use crate::session::Session;

/// Everything a session is, read in one instant.
#[derive(Debug, Clone)]
pub struct Packed {
    pub session: Session,
    /// The whole log, shared history included, oldest first.
    pub entries: Vec<Entry>,
    /// What an imported bundle brought that has no place here: a JSON object.
    pub carried: Option<String>,
}

/// A bundle to be kept for whoever comes with its token.
#[derive(Debug, Clone)]
pub struct NewExport {
    pub id: ExportId,
    pub session_id: SessionId,
    /// The bundle's content id.
    pub cid: [u8; 32],
    pub label: Option<String>,
    pub message_count: u64,
    /// Empty: nobody will ask for it.
    pub bundle: Vec<u8>,
    pub at: Timestamp,
    pub expires_at: Timestamp,
}

/// A bundle that was made here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    pub id: ExportId,
    pub session_id: SessionId,
    pub cid: [u8; 32],
    pub label: Option<String>,
    pub message_count: u64,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// When it was used up, and by which session (G7).
    pub imported: Option<(Timestamp, SessionId)>,
}

/// An entry that was written somewhere else. It never waits in the Tether.
#[derive(Debug, Clone)]
pub struct Imported {
    pub entry: NewEntry,
    pub turn_id: TurnId,
    /// When it was written.
    pub at: Timestamp,
}

/// A session to be made from a bundle, all of it or nothing.
#[derive(Debug, Clone)]
pub struct NewImport {
    pub session: NewSession,
    /// How many steps the session had taken. The last entry stands at this step.
    pub step_count: u64,
    /// Oldest first.
    pub entries: Vec<Imported>,
    pub carried: Option<String>,
    /// What the agent is to remember.
    pub memories: Vec<NewMemory>,
    pub snapshot: SnapshotId,
    /// The session it was, wherever that is.
    pub origin: String,
    pub export_id: Option<ExportId>,
    /// Use the export up; it must be there, and not used up before (G7).
    pub consume: bool,
    pub kind: EdgeKind,
    /// What lineage says of it: a JSON object.
    pub detail: String,
    pub key: Option<IdempotencyKey>,
}

/// A session that begins where another one was.
#[derive(Debug, Clone)]
pub struct NewFork {
    pub id: SessionId,
    pub token_hash: TokenHash,
    pub origin: SessionId,
    /// After this many steps; now, if none is said.
    pub at_step: Option<u64>,
    /// What lineage says of it: a JSON object.
    pub detail: String,
    pub snapshot: SnapshotId,
    pub key: Option<IdempotencyKey>,
    pub at: Timestamp,
}

/// A session that came from another one.
#[derive(Debug, Clone)]
pub struct Derived {
    pub session: Session,
    /// The position and the step of the last entry that came with it. What follows is its own; a
    /// handoff's bridge, too.
    pub point: (Seq, u64),
    /// The export behind it, if there is one.
    pub export_id: Option<ExportId>,
    /// The same key and body had made it before.
    pub replayed: bool,
}

/// How one session came from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    Import,
    Fork,
    Handoff,
}

impl EdgeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            EdgeKind::Import => "import",
            EdgeKind::Fork => "fork",
            EdgeKind::Handoff => "handoff",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [EdgeKind::Import, EdgeKind::Fork, EdgeKind::Handoff]
            .into_iter()
            .find(|kind| kind.as_str() == name)
    }
}

/// One step of where a session comes from. The origin may be a stranger's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    pub kind: EdgeKind,
    pub origin: String,
    pub session: String,
    pub export_id: Option<ExportId>,
    /// A JSON object.
    pub detail: String,
    pub at: Timestamp,
}

/// A family of sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Each once, oldest first.
    pub edges: Vec<Edge>,
    /// There are more sessions than were asked for. No edge leads to one of those.
    pub cut: bool,
    /// All of them, the one that was asked for first.
    pub members: Vec<Member>,
}

/// One session of a family, and what was spent in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub session: String,
    /// What its own turns cost; none if nobody here knows: it was deleted, or is a stranger's.
    pub spent: Option<(f64, Tokens)>,
}
