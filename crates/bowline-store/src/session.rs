//! A session's row: who it belongs to, where its log stands, what has been delivered.

use bowline_sbp::id::{AgentId, Seq, SessionId, SnapshotId};
use bowline_sbp::lifecycle::Status;
use bowline_sbp::surface::SurfaceContext;
use jiff::Timestamp;

/// SHA-256 of a session token; the token itself is never stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash(pub [u8; 32]);

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// A session to be made.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub id: SessionId,
    pub token_hash: TokenHash,
    /// Whether the session is to be found by its token alone. A token that names its session
    /// needs no such help, and the index costs more than the rest of a new session.
    pub listed: bool,
    pub agent_id: AgentId,
    /// A JSON object.
    pub metadata: String,
    pub at: Timestamp,
}

/// "Do this once": a name the caller chose, and what it named.
#[derive(Debug, Clone)]
pub struct IdempotencyKey {
    /// Whose names these are: a session, or a caller that makes sessions.
    pub scope: String,
    pub key: String,
    /// SHA-256 of the request the key stands for.
    pub body_hash: [u8; 32],
}

/// What became of a request to make a session.
#[derive(Debug, Clone)]
pub struct Created {
    pub session: Session,
    /// The same key and body had made it before.
    pub replayed: bool,
}

/// A session as it stands.
#[derive(Debug, Clone)]
pub struct Session {
    pub id: SessionId,
    pub token_hash: TokenHash,
    pub agent_id: AgentId,
    pub status: Status,
    pub step_count: u64,
    pub metadata: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The position of the newest log entry; entries are contiguous from 1 (G1).
    pub last_seq: Seq,
    /// Turns up to here are known to have arrived at a surface.
    pub delivered_seq: Seq,
    /// Turns that were produced but not yet delivered.
    pub pending_turns: u64,
    /// Turns that were ever produced for a surface.
    pub tethered_turns: u64,
    pub cost_usd: f64,
    /// Counts attachments; only the newest may act (G6).
    pub attach_epoch: u64,
    /// The attached surface.
    pub surface: Option<SurfaceContext>,
    pub snapshot: Option<Snapshot>,
    /// The session that goes on in this one's place: this one takes no more turns (G8).
    pub handed_to: Option<SessionId>,
}

impl Session {
    /// A session as it is when it was just made. Times are kept to the millisecond.
    pub fn made(new: &NewSession, status: Status) -> Self {
        let at = Timestamp::from_millisecond(new.at.as_millisecond()).unwrap_or(new.at);
        Self {
            id: new.id,
            token_hash: new.token_hash,
            agent_id: new.agent_id.clone(),
            status,
            step_count: 0,
            metadata: new.metadata.clone(),
            created_at: at,
            updated_at: at,
            last_seq: 0,
            delivered_seq: 0,
            pending_turns: 0,
            tethered_turns: 0,
            cost_usd: 0.0,
            attach_epoch: 0,
            surface: None,
            snapshot: None,
            handed_to: None,
        }
    }
}

/// A durable point to start from again: a position in the log (SBP-L2-14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    pub id: SnapshotId,
    pub kind: SnapshotKind,
    pub seq: Seq,
    pub at: Timestamp,
}

/// What a snapshot was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotKind {
    /// Something with an effect is about to be done.
    PreAction,
    /// It is done.
    PostAction,
    /// Every so many turns.
    Checkpoint,
}

impl SnapshotKind {
    pub fn as_str(self) -> &'static str {
        match self {
            SnapshotKind::PreAction => "pre_action",
            SnapshotKind::PostAction => "post_action",
            SnapshotKind::Checkpoint => "checkpoint",
        }
    }
}

/// A page of a newest-first list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Only what is older than this session.
    pub before: Option<SessionId>,
    pub limit: u32,
    pub status: Option<Status>,
}
