//! The stored rows of a session.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::commit::ReplicaId;
use super::open_call::OpenCalls;
use crate::approval::Approval;
use crate::id::{AgentId, Seq, SessionId, SnapshotId, TurnId, UserId};
use crate::lifecycle::Status;
use crate::surface::SurfaceContext;
use crate::title::Titles;

/// SHA-256 of a token; the token itself is never stored.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenHash(pub [u8; 32]);

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// A session to be created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewSession {
    pub id: SessionId,
    pub token_hash: TokenHash,
    /// Whether the session can be looked up by its token alone. A token that contains its session
    /// id needs no index entry, which costs more than the rest of a new session.
    pub listed: bool,
    /// Whose it is.
    pub user: UserId,
    pub agent_id: AgentId,
    /// A JSON object.
    pub metadata: String,
    pub at: Timestamp,
}

/// An idempotency key, and the request it was sent with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyKey {
    /// Namespace of the key: a session, or a caller that creates sessions.
    pub scope: String,
    pub key: String,
    /// SHA-256 of the request body.
    pub body_hash: [u8; 32],
}

impl IdempotencyKey {
    const MAKER: &str = "new:";

    /// The scope of a caller that creates sessions.
    pub fn maker_scope(caller: &str) -> String {
        format!("{}{caller}", Self::MAKER)
    }

    /// Whether its scope is a caller that creates sessions.
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
    /// The number of Tether turns so far.
    pub tethered_turns: u64,
    /// Cost of all log entries, including forked and imported ones.
    pub cost_usd: f64,
    /// Cost of the turns that ran in this session.
    pub spent_usd: f64,
    pub tokens: Tokens,
    /// The epoch of the newest attachment (G6).
    pub attach_epoch: u64,
    /// The number of accepted turns; gives each turn its `place`.
    pub turns_accepted: u64,
    pub snapshot: Option<Snapshot>,
    /// The session that continues this one after a handoff, and its agent: this one takes no more
    /// turns (G8).
    pub handed_to: Option<(SessionId, AgentId)>,
    pub updated_at: Timestamp,
    pub titles: Titles,
}

impl Head {
    /// The head of a new session.
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
            titles: Titles::default(),
        }
    }
}

/// Token counts, as reported by the upstream.
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

/// A durable point to resume from: a position in the log (SBP-L2-14).
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
    /// Tool calls are about to run.
    PreAction,
    /// A tool call has ended.
    PostAction,
    /// Taken every `checkpoint_every` turns.
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
    /// Its position in the session's order of turns.
    pub place: u64,
    /// A [`TurnRequest`](super::TurnRequest) as JSON text.
    pub request: String,
    /// The session's status before the turn; none if the turn made the session.
    pub found: Option<Status>,
    pub started: bool,
    /// The number of this run, counted from 1; a restart after a crash is another run.
    pub attempt: u32,
    /// The request's messages, and perhaps results of rounds, are in the log already.
    pub advanced: bool,
    /// The turn has an idempotency key: its caller may ask for its result again.
    pub keyed: bool,
    /// What the last owner left open that stopped in good order while the turn waited for tools.
    #[serde(default)]
    pub open_calls: Option<OpenCalls>,
}

/// An attached surface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttachmentRow {
    pub epoch: u64,
    /// The replica that holds its socket.
    pub edge: ReplicaId,
    /// It attached beside others (SBP-L2-20).
    pub joined: bool,
    /// The session is shared with its user.
    #[serde(default)]
    pub guest: bool,
    pub context: SurfaceContext,
}

/// A device that the session knows by its `surface_id` (SBP-L4-05).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceRow {
    pub surface_id: String,
    /// What it last sent about itself.
    pub context: SurfaceContext,
    pub first_seen: Timestamp,
    /// None if it was given a token and has never attached.
    pub last_seen: Option<Timestamp>,
    /// The device token and its expiry.
    pub token: Option<(TokenHash, Timestamp)>,
    /// The furthest position that it confirmed. None before its first attachment.
    pub delivered_seq: Option<Seq>,
}

/// An approval request, and the tool call that it is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskedRow {
    pub approval: Approval,
    /// The log position of the entry that holds the calls, and the index of the call in it. Not the
    /// model's call id: a model may give two calls of a turn the same id.
    pub place: (Seq, u32),
    /// The tool's definition that the approval is for.
    #[serde(default)]
    pub definition: String,
}

/// "Always here": calls of a tool by one device of the session need no approval any more, as long as the
/// tool's definition stays the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantRow {
    pub tool: String,
    /// `@` and the device's `surface_id`; `#` and an epoch for one without a name; empty for a server's
    /// tool.
    pub device: String,
    pub definition: String,
    pub at: Timestamp,
}
