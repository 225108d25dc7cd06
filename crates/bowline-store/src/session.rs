//! A session's row: agent, status, log position, delivery cursor.

use bowline_sbp::id::{AgentId, Seq, SessionId, UserId};
use bowline_sbp::lifecycle::Status;
use bowline_sbp::session::{NewSession, Snapshot, TokenHash};
use bowline_sbp::surface::SurfaceContext;
use bowline_sbp::title::Titles;
use jiff::Timestamp;

/// The result of creating a session.
#[derive(Debug, Clone)]
pub struct Created {
    pub session: Session,
    /// An earlier request with the same idempotency key and body created it.
    pub replayed: bool,
}

/// A stored session.
#[derive(Debug, Clone)]
pub struct Session {
    pub id: SessionId,
    pub token_hash: TokenHash,
    /// How often its token was replaced, and when the token was made.
    pub token_number: u64,
    pub token_at: Timestamp,
    /// Whose it is.
    pub user: UserId,
    pub agent_id: AgentId,
    pub status: Status,
    pub step_count: u64,
    pub metadata: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The position of the newest log entry; entries are contiguous from 1 (G1).
    pub last_seq: Seq,
    /// Turns up to here were confirmed by a surface.
    pub delivered_seq: Seq,
    /// Tether turns that are not confirmed yet.
    pub pending_turns: u64,
    /// The number of Tether turns so far.
    pub tethered_turns: u64,
    pub cost_usd: f64,
    /// The epoch of the newest attachment (G6).
    pub attach_epoch: u64,
    /// The newest attached surface, if any.
    pub surface: Option<SurfaceContext>,
    pub snapshot: Option<Snapshot>,
    /// The session that continues this one after a handoff: this one takes no more turns (G8).
    pub handed_to: Option<SessionId>,
    pub titles: Titles,
}

impl Session {
    /// A new session. Times are stored with millisecond precision.
    pub fn made(new: &NewSession, status: Status) -> Self {
        let at = Timestamp::from_millisecond(new.at.as_millisecond()).unwrap_or(new.at);
        Self {
            id: new.id,
            token_hash: new.token_hash,
            token_number: 0,
            token_at: at,
            user: new.user,
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
            titles: Titles::default(),
        }
    }
}

/// A session and the delivery cursor of a surface that is about to attach.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub session: Session,
    /// Entries after this position have not been delivered to the surface.
    pub cursor: Seq,
    /// The number of Tether turns after the cursor.
    pub pending: u64,
}

/// A page of a newest-first list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Whose sessions.
    pub user: UserId,
    /// Only sessions older than this one.
    pub before: Option<SessionId>,
    pub limit: u32,
    pub status: Option<Status>,
}
