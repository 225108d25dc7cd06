//! Inputs of a session: commands, which may be refused, and facts, which may not.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::commit::ReplicaId;
use super::log::NewEntry;
use super::open_call::SentCall;
use super::request::TurnRequest;
use super::row::{IdempotencyKey, TokenHash};
use super::turn::{PlannedCall, Replanned, RoundEnd};
use crate::approval::Decider;
use crate::blob::Blob;
use crate::error::Failure;
use crate::id::{AgentId, ApprovalId, ExportId, Seq, SessionId, SnapshotId, TurnId, UserId};
use crate::lifecycle::Change;
use crate::surface::{SurfaceContext, SurfaceTool};

/// The current time and a fresh id: non-deterministic inputs of a decision, passed in.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Monotonic: deadlines are measured by it (G14).
    pub instant: Instant,
    /// Wall clock: timestamps and expiries.
    pub at: Timestamp,
    /// A new id, for a snapshot that this input may take.
    pub fresh: Uuid,
}

/// Matches a reply to its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CommandId(pub u64);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// `known`: what the store holds for the command's idempotency key.
    Command {
        id: CommandId,
        command: Box<Command>,
        known: Option<KnownKey>,
    },
    Fact(Fact),
}

/// What the store holds for an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownKey {
    /// The key was stored with the same request body.
    pub same_body: bool,
    /// None if the key created a session without a turn.
    pub turn_id: Option<TurnId>,
    /// Set once the turn has ended.
    pub result: Option<String>,
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    Submit(Submit),
    /// The state of a turn that was accepted before: accepted, or its outcome if it has ended.
    Join {
        turn: TurnId,
    },
    /// Reply with the turn's outcome when it has ended.
    Await {
        turn: TurnId,
    },
    /// Cancel these turns; if `running`, also the turn that runs now.
    Cancel {
        turns: Vec<TurnId>,
        running: bool,
    },
    Attach(Attach),
    /// A surface confirmed delivery up to `seq`. Ignored if the surface is not attached; cursors
    /// never move back (G5).
    Confirmed {
        epoch: u64,
        seq: Seq,
    },
    /// A device's tool result, received by another replica. One that the owning replica received
    /// is a fact.
    ToolResult {
        epoch: u64,
        call: Uuid,
        result: Result<Value, String>,
    },
    /// A person approves or denies a tool call. The first decision counts.
    Decide {
        approval: ApprovalId,
        approved: bool,
        /// Also allow later calls of the tool by the same device.
        #[serde(default)]
        always: bool,
        by: Decider,
    },
    /// A call of a device's tool that belongs to no turn.
    CallDevice {
        call: Box<PlannedCall>,
    },
    /// The same, of a call that an earlier owner has sent and left open.
    ResumeCall {
        call: Box<PlannedCall>,
        sent: Box<SentCall>,
    },
    /// The caller of [`Command::CallDevice`] no longer waits for the result.
    GiveUpCall {
        call: Uuid,
    },
    SetStatus(Change),
    /// A person names the session; none returns to the automatic title.
    SetTitle(Option<Arc<str>>),
    Device(DeviceChange),
    HandOff(HandOff),
    /// Another gateway takes the session away: until then no new turn is accepted, so that the session comes to
    /// rest and stays there. Not stored: a later owner knows what is reserved from the store.
    Hold {
        by: Uuid,
        until: Timestamp,
    },
    /// That gateway does not take it.
    EndHold {
        by: Uuid,
    },
    Delete,
}

/// Submits a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submit {
    pub turn: TurnId,
    pub request: Arc<TurnRequest>,
    pub key: Option<IdempotencyKey>,
    /// Resume the session if it is suspended.
    pub resume: bool,
    /// The epoch of the attachment that sent it.
    pub sender: Option<u64>,
    /// Reply when the turn has ended, not when it is accepted.
    pub wait: bool,
    /// Blobs that the request's messages refer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<Blob>,
}

/// Attaches a surface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attach {
    /// The socket's id, chosen by the replica that holds it: a retried attach returns the same
    /// attachment.
    pub socket: Uuid,
    /// The replica that holds the socket.
    pub edge: ReplicaId,
    pub surface: SurfaceContext,
    /// The tools of the surface that may be called.
    pub tools: Vec<SurfaceTool>,
    /// The device token, if the surface authenticated with one: it must still be valid when the
    /// surface is attached.
    pub device: Option<TokenHash>,
    /// Attach beside the other surfaces instead of replacing them (SBP-L2-20).
    pub join: bool,
    /// Close all other attachments.
    pub take_over: bool,
    /// The session is shared with its user. It changes neither the session's status nor its devices.
    #[serde(default)]
    pub guest: bool,
    /// Its user, if that may decide on tool calls here.
    #[serde(default)]
    pub approver: Option<UserId>,
}

/// An attachment. Messages from a surface count only while its `epoch` is attached (G6).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    pub epoch: u64,
    /// What the device sent now; fields it left out are taken from its last attachment.
    pub context: SurfaceContext,
    /// Entries after this position have not been delivered to it.
    pub cursor: Seq,
    pub head: Seq,
    /// When the device token expires; the attachment is closed then.
    pub until: Option<Timestamp>,
}

/// Changes a device's row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum DeviceChange {
    /// A token for one device. It replaces the device's earlier token; if there was one, the
    /// device's attachment is closed.
    Token { surface_id: String, hash: TokenHash, expires_at: Timestamp },
    /// Deletes the device and its token. If it had a token, its attachment is closed.
    Forget { surface_id: String },
}

/// Hands the session off to another agent, as a new session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandOff {
    pub id: SessionId,
    pub export_id: ExportId,
    pub token_hash: TokenHash,
    pub to_agent: AgentId,
    pub message: Option<String>,
    pub reason: Option<String>,
    /// Include the agent's memory in what the next agent is given.
    pub memory: bool,
    pub key: Option<IdempotencyKey>,
}

/// The bundle of a handoff, built outside the machine when the handoff reaches the front of the
/// queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Packed {
    /// The bundle's content id.
    pub cid: [u8; 32],
    /// Whether there is memory in it.
    #[serde(default)]
    pub with_memory: bool,
    pub message_count: u64,
    pub expires_at: Timestamp,
    /// The first log entries of the new session: the context for the new agent.
    pub bridge: Vec<NewEntry>,
    pub bridge_turn: TurnId,
    pub snapshot: SnapshotId,
    /// The `detail` of the lineage record: a JSON object.
    pub detail: String,
}

/// A handoff as it is stored: a fork for another agent, an export that is already redeemed, and a
/// source session that takes no more turns (G8).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandedOff {
    pub handoff: HandOff,
    pub packed: Packed,
    /// Log position and step count of the source session.
    pub point: (Seq, u64),
    pub at: Timestamp,
}

/// Something that has happened. A fact is never refused: if its commit fails, it is retried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    RoundEnded {
        turn: TurnId,
        attempt: u32,
        round: u32,
        end: RoundEnd,
    },
    /// The reply to [`Effect::Replan`](super::Effect::Replan).
    Replanned {
        turn: TurnId,
        attempt: u32,
        plan: Result<Replanned, Failure>,
    },
    CallEnded {
        call: Uuid,
        result: Result<Value, String>,
    },
    /// A device's tool result. Ignored if no call waits for it (SBP-L5-04).
    ToolResult {
        epoch: u64,
        call: Uuid,
        result: Result<Value, String>,
    },
    /// A surface's socket has ended. `restarts`: because its gateway process stops or is lost. The device is
    /// expected at another one, and keeps its calls if it can be told from others.
    SurfaceGone {
        epoch: u64,
        #[serde(default)]
        restarts: bool,
    },
    /// The reply to [`Effect::Pack`](super::Effect::Pack). `last_seq`: the position that was
    /// requested; a reply for an earlier request is ignored.
    Packed {
        id: SessionId,
        last_seq: Seq,
        packed: Result<Box<Packed>, Failure>,
    },
    /// A task's store calls time out: commands that wait for a turn are refused; the turn goes on.
    StoreBusy,
    /// The gateway drains: no new work is started.
    Stop,
    /// A deadline may have passed.
    Deadline,
}
