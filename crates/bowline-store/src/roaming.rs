//! Rows of exports, imports, forks and lineage.

use std::sync::Arc;

use bowline_sbp::budget::Spender;
use bowline_sbp::federation::{GatewayId, MovedTether};
use bowline_sbp::id::{ExportId, Seq, SessionId, SnapshotId, TurnId};
use bowline_sbp::message::Message;
use bowline_sbp::session::{IdempotencyKey, NewEntry, NewSession, TokenHash, Tokens};
use jiff::Timestamp;

use crate::entry::Entry;
use crate::memory::NewMemory;
use crate::session::Session;
use crate::{Error, Result};

/// A whole session, read in one transaction.
#[derive(Debug, Clone)]
pub struct Packed {
    pub session: Session,
    /// The whole log, shared history included, oldest first.
    pub entries: Vec<Entry>,
    /// The current instruction, if it is another than the system messages in the log.
    pub instruction: Option<Vec<Message>>,
    /// Data of an imported bundle that has no column here: a JSON object.
    pub carried: Option<String>,
}

/// An export to be stored.
#[derive(Debug, Clone)]
pub struct NewExport {
    pub id: ExportId,
    pub session_id: SessionId,
    /// The bundle's content id.
    pub cid: [u8; 32],
    pub label: Option<String>,
    pub message_count: u64,
    /// Whether there is memory in the bundle.
    pub with_memory: bool,
    /// Empty if it will never be imported.
    pub bundle: Vec<u8>,
    pub at: Timestamp,
    pub expires_at: Timestamp,
    /// Whose budget it counts for.
    pub spender: Option<Spender>,
    /// The gateway that it is for, if one was named.
    pub peer: Option<GatewayId>,
    /// Trackers are told of it.
    pub announce: bool,
}

/// A stored export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    pub id: ExportId,
    pub session_id: SessionId,
    pub cid: [u8; 32],
    pub label: Option<String>,
    pub message_count: u64,
    /// Whether there is memory in the bundle. Of one that was made before this was recorded: it may be.
    pub with_memory: bool,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// When it was imported, and as which session (G7).
    pub imported: Option<(Timestamp, SessionId)>,
    /// The gateway that it is for, if one was named.
    pub peer: Option<GatewayId>,
}

/// An entry of an imported session. It is queued in the Tether only if [`NewImport::tether`] names it.
#[derive(Debug, Clone)]
pub struct Imported {
    pub entry: NewEntry,
    pub turn_id: TurnId,
    /// When it was created at the source.
    pub at: Timestamp,
}

/// A session to be created from a bundle.
#[derive(Debug, Clone)]
pub struct NewImport {
    pub session: NewSession,
    /// The step count of the source session. The last entry gets this step.
    pub step_count: u64,
    /// Oldest first.
    pub entries: Vec<Imported>,
    pub carried: Option<String>,
    /// Memories to add for the agent, all of them or nothing is imported.
    pub memories: Vec<NewMemory>,
    pub snapshot: SnapshotId,
    /// The id of the source session; it may belong to another gateway.
    pub origin: String,
    pub export_id: Option<ExportId>,
    /// Mark the export as used; it must exist and be unused (G7).
    pub consume: bool,
    pub kind: EdgeKind,
    /// The `detail` of the lineage edge: a JSON object.
    pub detail: String,
    /// Its title; without one it is called by the first words of its user.
    pub title: Option<Arc<str>>,
    pub key: Option<IdempotencyKey>,
    /// What its surfaces have not got yet, if it comes from another gateway. Otherwise they have got all.
    pub tether: Option<MovedTether>,
}

/// A fork to be created.
#[derive(Debug, Clone)]
pub struct NewFork {
    pub id: SessionId,
    pub token_hash: TokenHash,
    pub origin: SessionId,
    /// Fork after this many steps; at the end of the log if none.
    pub at_step: Option<u64>,
    /// Its title, if not that of its origin.
    pub title: Option<Arc<str>>,
    /// The `detail` of the lineage edge: a JSON object.
    pub detail: String,
    pub snapshot: SnapshotId,
    pub key: Option<IdempotencyKey>,
    pub at: Timestamp,
}

/// A session created by an import, fork or handoff.
#[derive(Debug, Clone)]
pub struct Derived {
    pub session: Session,
    /// Position and step of the last entry taken from the source session. Later entries are its
    /// own, including the bridge of a handoff.
    pub point: (Seq, u64),
    /// The export it was created from, if any.
    pub export_id: Option<ExportId>,
    /// An earlier request with the same idempotency key and body created it.
    pub replayed: bool,
}

/// The result that is stored under the idempotency key of an import, fork or handoff, for replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) point: (Seq, u64),
    pub(crate) export_id: Option<ExportId>,
}

impl Kept {
    pub(crate) fn to_json(self) -> Result<String> {
        serde_json::to_string(&(self.point, self.export_id)).map_err(|_| unreadable())
    }

    pub(crate) fn of_json(text: &str) -> Result<Self> {
        let (point, export_id) = serde_json::from_str(text).map_err(|_| unreadable())?;
        Ok(Self { point, export_id })
    }
}

fn unreadable() -> Error {
    Error::Corrupt("a position that is not JSON".into())
}

/// How one session was derived from another.
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

/// One edge of the lineage tree. The origin may be a session of another gateway.
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

/// A lineage tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Each once, oldest first.
    pub edges: Vec<Edge>,
    /// The tree has more sessions than the limit. No edge leads to one that was left out.
    pub cut: bool,
    /// All sessions of the tree, the requested one first.
    pub members: Vec<Member>,
}

/// One session of a lineage tree, and its cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub session: String,
    /// The cost of its own turns; none if unknown: it was deleted, or belongs to another gateway.
    pub spent: Option<(f64, Tokens)>,
}
