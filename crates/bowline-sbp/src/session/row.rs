//! What the store keeps of a session, row by row.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::commit::ReplicaId;
use crate::approval::Approval;
use crate::id::{AgentId, Seq, SessionId, SnapshotId, TurnId};
use crate::lifecycle::Status;
use crate::surface::SurfaceContext;

/// SHA-256 of a token; the token itself is never stored.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenHash(pub [u8; 32]);

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// A session to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyKey {
    /// Whose names these are: a session, or a caller that makes sessions.
    pub scope: String,
    pub key: String,
    /// SHA-256 of the request the key stands for.
    pub body_hash: [u8; 32],
}

impl IdempotencyKey {
    const MAKER: &str = "new:";

    /// The scope of a caller that makes sessions.
    pub fn maker_scope(caller: &str) -> String {
        format!("{}{caller}", Self::MAKER)
    }

    /// Whether it is a name of a caller's that makes sessions.
    pub fn is_of_maker(&self) -> bool {
        self.scope.starts_with(Self::MAKER)
    }
}

/// The part of a session's row that its turns and surfaces change. A commit writes all of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    pub status: Status,
    pub step_count: u64,
    /// The position of the newest log entry; entries are contiguous from 1 (G1).
    pub last_seq: Seq,
    /// The furthest position that any surface confirmed: the Tether begins after it.
    pub delivered_seq: Seq,
    /// Turns that were ever produced for a surface.
    pub tethered_turns: u64,
    /// What its entries cost, wherever that was paid.
    pub cost_usd: f64,
    /// What was paid here: the session's own turns, and their tokens.
    pub spent_usd: f64,
    pub tokens: Tokens,
    /// Counts attachments (G6).
    pub attach_epoch: u64,
    /// Counts accepted turns: the order in which they run.
    pub turns_accepted: u64,
    pub snapshot: Option<Snapshot>,
    /// The session that goes on in this one's place, and its agent: this one takes no more turns (G8).
    pub handed_to: Option<(SessionId, AgentId)>,
    pub updated_at: Timestamp,
}

impl Head {
    /// Of a session that was just made.
    pub fn new(status: Status, at: Timestamp) -> Self {
        Self {
            status,
            step_count: 0,
            last_seq: 0,
            delivered_seq: 0,
            tethered_turns: 0,
            cost_usd: 0.0,
            spent_usd: 0.0,
            tokens: Tokens::default(),
            attach_epoch: 0,
            turns_accepted: 0,
            snapshot: None,
            handed_to: None,
            updated_at: at,
        }
    }
}

/// What models were sent and sent back, as their servers count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tokens {
    pub prompt: u64,
    pub completion: u64,
}

impl std::ops::AddAssign for Tokens {
    fn add_assign(&mut self, other: Self) {
        self.prompt += other.prompt;
        self.completion += other.completion;
    }
}

/// A durable point to start from again: a position in the log (SBP-L2-14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub id: SnapshotId,
    pub kind: SnapshotKind,
    pub seq: Seq,
    pub at: Timestamp,
}

/// What a snapshot was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

    pub fn named(name: &str) -> Option<Self> {
        [SnapshotKind::PreAction, SnapshotKind::PostAction, SnapshotKind::Checkpoint]
            .into_iter()
            .find(|kind| kind.as_str() == name)
    }
}

/// A turn that was accepted and has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRow {
    pub id: TurnId,
    /// Its place in the session's order.
    pub place: u64,
    /// A [`TurnRequest`](super::TurnRequest) as JSON text.
    pub request: String,
    /// The session's status before the turn; none if the turn made the session.
    pub found: Option<Status>,
    pub started: bool,
    /// Which run this is; 1 for the first.
    pub attempt: u32,
    /// What was asked, and perhaps more, is in the log already.
    pub advanced: bool,
    /// Its caller may ask for its result again.
    pub keyed: bool,
}

/// A surface that is attached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttachmentRow {
    pub epoch: u64,
    /// The replica that holds its socket.
    pub edge: ReplicaId,
    /// It attached beside others (SBP-L2-20).
    pub joined: bool,
    pub context: SurfaceContext,
}

/// A device that the session knows by name (SBP-L4-05).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceRow {
    pub surface_id: String,
    /// What it last said of itself.
    pub context: SurfaceContext,
    pub first_seen: Timestamp,
    /// None if it has a token and never used it.
    pub last_seen: Option<Timestamp>,
    /// Its own token, and until when that is good.
    pub token: Option<(TokenHash, Timestamp)>,
    /// The furthest position that it confirmed. None before it was ever attached.
    pub delivered_seq: Option<Seq>,
}

/// A question whether a tool may be called, and which call it is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskedRow {
    pub approval: Approval,
    /// The log position where the calls are on record, and which of them it is. A model may give
    /// two calls of a turn the same id.
    pub place: (Seq, u32),
}
