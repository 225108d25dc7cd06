//! A turn on its way: accepted, run, finished; and what survives a crash in between.

use bowline_sbp::id::{AgentId, SessionId, SnapshotId, TurnId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::entry::NewEntry;
use crate::memory::NewMemory;
use crate::session::{IdempotencyKey, NewSession, Session, SnapshotKind};

/// One running gateway process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceId(pub Uuid);

/// The session a turn belongs to.
#[derive(Debug, Clone)]
pub enum TurnSession {
    /// Made together with the turn, or not at all.
    New(NewSession),
    /// There already. `resume`: the caller named it to go on even if it is suspended.
    Existing { id: SessionId, resume: bool },
}

/// A turn to be accepted.
#[derive(Debug, Clone)]
pub struct NewTurn {
    pub id: TurnId,
    pub session: TurnSession,
    /// What the engine needs to run it again after a crash, in the engine's own words.
    pub request: String,
    pub key: Option<IdempotencyKey>,
    pub owner: InstanceId,
    /// `false`: others are before it, it waits.
    pub started: bool,
    pub at: Timestamp,
}

/// What became of a turn that was offered.
#[derive(Debug, Clone)]
pub enum Accepted {
    /// It is on disk and will be run.
    Fresh { session: Session },
    /// The same request came before under the same key. `result` is there once it has ended.
    Known { turn_id: TurnId, session: Session, result: Option<String> },
    /// The session is suspended and was not resumed: nothing was stored (SBP-L2-15).
    Suspended { session: Session },
}

/// A turn on its way has something to keep: entries, and an effect with them, all or none.
#[derive(Debug, Clone)]
pub struct Advance {
    pub turn_id: TurnId,
    pub owner: InstanceId,
    pub entries: Vec<NewEntry>,
    pub snapshot: (SnapshotKind, SnapshotId),
    /// What the agent is to remember from now on.
    pub memories: Option<(AgentId, Vec<NewMemory>)>,
    pub at: Timestamp,
}

/// A turn's end: the entries it adds to the log, all or none.
#[derive(Debug, Clone)]
pub struct Finish {
    pub turn_id: TurnId,
    pub owner: InstanceId,
    pub entries: Vec<NewEntry>,
    /// Take a snapshot if the new step count is a multiple of `every`.
    pub checkpoint: SnapshotId,
    pub checkpoint_every: u32,
    /// Kept under the turn's idempotency key, to be given again. `None`: there is nothing to give,
    /// and the key is free for another try.
    pub result: Option<String>,
    pub at: Timestamp,
}

/// A turn that its instance did not finish.
#[derive(Debug, Clone)]
pub struct Unfinished {
    pub id: TurnId,
    pub session_id: SessionId,
    pub request: String,
    /// Which run the next one is; 1 for one that only waited.
    pub attempt: u32,
    /// Whether what was asked is in the log already, and what came of it so far.
    pub advanced: bool,
    /// Whether its caller gave it a name to ask for its result again.
    pub keyed: bool,
}
