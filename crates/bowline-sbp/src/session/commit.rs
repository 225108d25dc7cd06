//! A commit: the writes of one session, and the lease under which they are stored.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::input::HandedOff;
use super::log::Placed;
use super::open_call::OpenCalls;
use super::row::{
    AskedRow, AttachmentRow, DeviceRow, GrantRow, Head, IdempotencyKey, NewSession, TurnRow,
};
use crate::approval;
use crate::blob::Blob;
use crate::budget::{Spender, Spent};
use crate::id::{AgentId, ApprovalId, Seq, SessionId, TurnId, UserId};

/// One running gateway process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReplicaId(pub Uuid);

/// Fencing token: counts the owners of a session. A commit with an older one is refused (G19).
pub type Fence = u64;

/// The right to write a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub owner: ReplicaId,
    pub fence: Fence,
    /// This commit takes the lease: then `fence` is the previous owner's.
    pub take: bool,
}

/// Writes of one session, stored in one transaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// Random. Only this proves that a commit whose result was unknown was applied.
    pub id: Uuid,
    pub session: SessionId,
    pub lease: Lease,
    /// The number of earlier commits of the session.
    pub version: u64,
    /// Set if this commit creates the session.
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
        /// Blobs that its messages refer to.
        blobs: Vec<Blob>,
    },
    /// A waiting turn starts, or a turn starts again after a restart.
    Start {
        turn: TurnId,
        attempt: u32,
    },
    /// The owner stops in good order while the turn waits for tools: the calls that the next owner goes on
    /// with. Replaces those of an earlier write.
    LeaveOpen {
        turn: TurnId,
        open: OpenCalls,
    },
    /// Appends entries to the log. `advances`: the turn that continues after them.
    Append {
        entries: Vec<Placed>,
        advances: Option<TurnId>,
    },
    /// Counts what a round of a turn used, on the day of the commit.
    Spend {
        spender: Spender,
        spent: Spent,
    },
    /// A turn has ended. `result`: stored under its idempotency key for replay; none frees the key.
    End {
        turn: TurnId,
        keyed: bool,
        result: Option<String>,
    },
    /// A turn failed and leaves no trace: its row and its idempotency key are deleted.
    Forget {
        turn: TurnId,
    },
    Ask(AskedRow),
    StepApproval {
        id: ApprovalId,
        state: approval::ApprovalState,
        /// Set by a person's decision.
        decision: Option<approval::DecisionRecord>,
    },
    /// Inserts or replaces what is allowed for good.
    Grant(GrantRow),
    Attach(AttachmentRow),
    Detach {
        epoch: u64,
    },
    /// The session's delivery cursor: the Tether drops what was confirmed.
    Delivered {
        seq: Seq,
    },
    /// Inserts or replaces a device's row.
    Device(DeviceRow),
    ForgetDevice {
        surface_id: String,
    },
    HandOff(Box<HandedOff>),
    /// Deletes the session and everything in it; forks keep the log entries they share.
    Delete,
}

impl Commit {
    /// About how many bytes of text it stores.
    pub fn bytes(&self) -> usize {
        self.writes.iter().map(Write::bytes).sum()
    }
}

impl Write {
    /// The same of one write. What is always small does not count.
    fn bytes(&self) -> usize {
        match self {
            Write::Accept { turn, .. } => turn.request.len(),
            Write::Append { entries, .. } => entries.iter().map(|it| it.entry.bytes()).sum(),
            Write::End { result, .. } => result.as_ref().map_or(0, String::len),
            _ => 0,
        }
    }

    /// The name of the variant, for tests and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Write::Accept { .. } => "accept",
            Write::Start { .. } => "start",
            Write::LeaveOpen { .. } => "leave_open",
            Write::Append { .. } => "append",
            Write::Spend { .. } => "spend",
            Write::End { .. } => "end",
            Write::Forget { .. } => "forget",
            Write::Ask(_) => "ask",
            Write::StepApproval { .. } => "step_approval",
            Write::Grant(_) => "grant",
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

/// Why a commit was not stored, or may not have been.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Another replica owns the session, or the version is stale, or the session was deleted.
    #[error("another gateway process owns the session, or the session was deleted")]
    Fenced,
    /// A session was already created under this idempotency key.
    #[error("the idempotency key was used already")]
    KeyTaken,
    #[error("that session token belongs to another session")]
    TokenTaken,
    /// Nothing was stored; a retry may succeed.
    #[error("the database cannot be written: {0}")]
    NotStored(String),
    /// Nothing was stored, and a retry would be refused, too: the store cannot take what it contains.
    #[error("the database refuses it: {0}")]
    Refused(String),
    /// Whether it was stored is unknown: send the same commit again.
    #[error("whether the database stored it is unknown: {0}")]
    Unknown(String),
    /// The process must exit and recover (G4).
    #[error("the database failed permanently: {0}")]
    Fatal(String),
}

/// A session as loaded from the store by its next owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    pub id: SessionId,
    pub user: UserId,
    pub agent_id: AgentId,
    pub head: Head,
    pub fence: Fence,
    pub version: u64,
    /// The replica that holds the lease, if it is alive.
    #[serde(default)]
    pub owner: Option<ReplicaId>,
    /// In the order of their `place`.
    pub turns: Vec<TurnRow>,
    pub attachments: Vec<AttachmentRow>,
    pub devices: Vec<DeviceRow>,
    /// Open approvals, and all approvals of turns that have not ended.
    pub asked: Vec<AskedRow>,
    #[serde(default)]
    pub grants: Vec<GrantRow>,
    /// The reservation of another gateway, and until when.
    #[serde(default)]
    pub held: Option<(Uuid, Timestamp)>,
}
