//! A session's row: who it belongs to, where its log stands, what has been delivered.

use bowline_sbp::id::{AgentId, Seq, SessionId};
use bowline_sbp::lifecycle::Status;
use bowline_sbp::session::{NewSession, Snapshot, TokenHash};
use bowline_sbp::surface::SurfaceContext;
use jiff::Timestamp;

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
    /// Counts attachments (G6).
    pub attach_epoch: u64,
    /// The surface that attached last, if one is attached.
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

/// A session as a surface finds it that is about to attach.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub session: Session,
    /// What the surface missed begins after this position.
    pub cursor: Seq,
    /// How many turns of the Tether that is.
    pub pending: u64,
}

/// A page of a newest-first list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Only what is older than this session.
    pub before: Option<SessionId>,
    pub limit: u32,
    pub status: Option<Status>,
}
