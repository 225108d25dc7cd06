//! What the store is asked to write, and under which lease.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::input::HandedOff;
use super::log::Placed;
use super::row::{AskedRow, AttachmentRow, DeviceRow, Head, IdempotencyKey, NewSession, TurnRow};
use crate::approval;
use crate::id::{AgentId, ApprovalId, Seq, SessionId, TurnId};

/// One running gateway process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReplicaId(pub Uuid);

/// Counts the owners of a session: a write with an older one is refused (G19).
pub type Fence = u64;

/// The right to write a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub owner: ReplicaId,
    pub fence: Fence,
    /// The lease is taken by this commit: then `fence` is the one before.
    pub take: bool,
}

/// Writes of one session that belong together: all of them are stored, or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// Random. Only this proves that a commit whose fate was unknown was applied.
    pub id: Uuid,
    pub session: SessionId,
    pub lease: Lease,
    /// How many commits the session has had.
    pub version: u64,
    /// The session is made by this commit.
    pub make: Option<NewSession>,
    pub head: Head,
    /// In order.
    pub writes: Vec<Write>,
}

/// One row, or a few that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Write {
    /// A turn is accepted: from now on it survives a crash.
    Accept {
        turn: TurnRow,
        key: Option<IdempotencyKey>,
    },
    /// A turn that waited begins to run, or one that ran begins again.
    Start {
        turn: TurnId,
        attempt: u32,
    },
    /// Entries for the end of the log. `advances`: the turn goes on after them.
    Append {
        entries: Vec<Placed>,
        advances: Option<TurnId>,
    },
    /// A turn has ended. `result`: kept under its key, to be given again; none frees the key.
    End {
        turn: TurnId,
        keyed: bool,
        result: Option<String>,
    },
    /// A turn came to nothing: as if it had never been asked for.
    Forget {
        turn: TurnId,
    },
    Ask(AskedRow),
    StepApproval {
        id: ApprovalId,
        state: approval::ApprovalState,
    },
    Attach(AttachmentRow),
    Detach {
        epoch: u64,
    },
    /// The session's Tether lets go of what a surface has.
    Delivered {
        seq: Seq,
    },
    /// A device's row, as it is from now on.
    Device(DeviceRow),
    ForgetDevice {
        surface_id: String,
    },
    HandOff(Box<HandedOff>),
    /// The session and all it holds; its forks keep what they share.
    Delete,
}

impl Write {
    /// Its name, for tests and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Write::Accept { .. } => "accept",
            Write::Start { .. } => "start",
            Write::Append { .. } => "append",
            Write::End { .. } => "end",
            Write::Forget { .. } => "forget",
            Write::Ask(_) => "ask",
            Write::StepApproval { .. } => "step_approval",
            Write::Attach(_) => "attach",
            Write::Detach { .. } => "detach",
            Write::Delivered { .. } => "delivered",
            Write::Device(_) => "device",
            Write::ForgetDevice { .. } => "forget_device",
            Write::HandOff(_) => "hand_off",
            Write::Delete => "delete",
        }
    }
}

/// Why a commit did not happen, or may not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Somebody else owns the session, or it has moved on, or it is gone.
    #[error("the session is not this instance's to write")]
    Fenced,
    /// A session made under this idempotency key is there already.
    #[error("the idempotency key is taken")]
    KeyTaken,
    #[error("that session token belongs to another session")]
    TokenTaken,
    /// Nothing was stored; it may work again later by itself.
    #[error("the database cannot be written: {0}")]
    NotStored(String),
    /// Whether it was stored is not known: send the same commit again.
    #[error("whether the database stored it is not known: {0}")]
    Unknown(String),
    /// The process must exit and recover (G4).
    #[error("the database failed for good: {0}")]
    Fatal(String),
}

/// A session as its next owner finds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    pub id: SessionId,
    pub agent_id: AgentId,
    pub head: Head,
    pub fence: Fence,
    pub version: u64,
    /// By place.
    pub turns: Vec<TurnRow>,
    pub attachments: Vec<AttachmentRow>,
    pub devices: Vec<DeviceRow>,
    /// Questions that are open, and all of turns that have not ended.
    pub asked: Vec<AskedRow>,
}
