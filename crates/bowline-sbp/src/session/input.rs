//! What comes in: commands, which may be refused, and facts, which may not.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::commit::ReplicaId;
use super::log::NewEntry;
use super::request::TurnRequest;
use super::row::{IdempotencyKey, TokenHash};
use super::turn::{PlannedCall, Replanned, RoundEnd};
use crate::error::Failure;
use crate::id::{AgentId, ApprovalId, ExportId, Seq, SessionId, SnapshotId, TurnId};
use crate::lifecycle::Change;
use crate::surface::{SurfaceContext, SurfaceTool};

/// The time, and what a decision may need that must not be made inside.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Deadlines are measured by this one (G14).
    pub instant: Instant,
    /// Timestamps and expiries.
    pub at: Timestamp,
    /// A new id, for a snapshot that this input may take.
    pub fresh: Uuid,
}

/// A command's name, for its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CommandId(pub u64);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// `known`: what the store has under the command's idempotency key.
    Command {
        id: CommandId,
        command: Box<Command>,
        known: Option<KnownKey>,
    },
    Fact(Fact),
}

/// What the store has under an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownKey {
    /// The same request came under it.
    pub same_body: bool,
    /// None if the key made a session and nothing else.
    pub turn_id: Option<TurnId>,
    /// There once the turn has ended.
    pub result: Option<String>,
}

/// What clients ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    Submit(Submit),
    /// A turn that was accepted before: where it stands.
    Join {
        turn: TurnId,
    },
    /// Tell me how the turn ends.
    Await {
        turn: TurnId,
    },
    /// Stop these turns; and the running one, whichever it is, if `running`.
    Cancel {
        turns: Vec<TurnId>,
        running: bool,
    },
    Attach(Attach),
    /// A surface has everything up to there. Ignored from one that is not attached; never moves
    /// back (G5).
    Confirmed {
        epoch: u64,
        seq: Seq,
    },
    /// A device's answer that came to another replica. One that came to the owner's is a fact.
    ToolResult {
        epoch: u64,
        call: Uuid,
        result: Result<Value, String>,
    },
    /// A person's verdict. The first counts.
    Decide {
        approval: ApprovalId,
        approved: bool,
    },
    /// A call of a device's tool by someone who takes no turn.
    CallDevice {
        call: Box<PlannedCall>,
    },
    /// Whoever called the device does not wait any more.
    GiveUpCall {
        call: Uuid,
    },
    SetStatus(Change),
    Device(DeviceChange),
    HandOff(HandOff),
    Delete,
}

/// A turn that is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submit {
    pub turn: TurnId,
    pub request: Arc<TurnRequest>,
    pub key: Option<IdempotencyKey>,
    /// Go on even if the session is suspended.
    pub resume: bool,
    /// The attachment that sent it.
    pub sender: Option<u64>,
    /// Reply when the turn has ended, not when it is accepted.
    pub wait: bool,
}

/// A surface that wants to attach.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attach {
    /// The socket's name, which its edge made: the same attach again gives the same attachment.
    pub socket: Uuid,
    /// The replica that holds the socket.
    pub edge: ReplicaId,
    pub surface: SurfaceContext,
    /// Its tools that may be called.
    pub tools: Vec<SurfaceTool>,
    /// The device's own token, if it comes with one: it must still be good when the surface is
    /// attached.
    pub device: Option<TokenHash>,
    /// Stay beside the others.
    pub join: bool,
    /// Close all others.
    pub take_over: bool,
}

/// An attachment: `epoch` is its right to act, until it is closed (G6).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    pub epoch: u64,
    /// What the device says now, and what it said before where it says nothing now.
    pub context: SurfaceContext,
    /// What it missed begins after this position.
    pub cursor: Seq,
    pub head: Seq,
    /// When the device's own token ends, and the attachment with it.
    pub until: Option<Timestamp>,
}

/// Devices are given tokens and forgotten.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum DeviceChange {
    /// A token for one device. It takes the place of the device's earlier one, and whoever is
    /// attached as that device is closed if it had one.
    Token { surface_id: String, hash: TokenHash, expires_at: Timestamp },
    /// The device and its token are forgotten. One that has a token and is attached is closed.
    Forget { surface_id: String },
}

/// A session that is to go on with another agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandOff {
    pub id: SessionId,
    pub export_id: ExportId,
    pub token_hash: TokenHash,
    pub to_agent: AgentId,
    pub message: Option<String>,
    pub reason: Option<String>,
    /// What the agent remembers is told to the next one.
    pub memory: bool,
    pub key: Option<IdempotencyKey>,
}

/// What a handoff needs beside what the session knows: made when it is its turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Packed {
    /// The bundle's content id.
    pub cid: [u8; 32],
    pub message_count: u64,
    pub expires_at: Timestamp,
    /// What the new agent is told.
    pub bridge: Vec<NewEntry>,
    pub bridge_turn: TurnId,
    pub snapshot: SnapshotId,
    /// What lineage says of it: a JSON object.
    pub detail: String,
}

/// A handoff as it is written: a fork for another agent, an export that is used up at once, and a
/// source that takes no more turns (G8).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandedOff {
    pub handoff: HandOff,
    pub packed: Packed,
    /// Where the source stood: position and step.
    pub point: (Seq, u64),
    pub at: Timestamp,
}

/// What has happened. A fact that cannot be written now is written later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    RoundEnded {
        turn: TurnId,
        attempt: u32,
        round: u32,
        end: RoundEnd,
    },
    /// What a crash left of a turn was looked at.
    Replanned {
        turn: TurnId,
        attempt: u32,
        plan: Result<Replanned, Failure>,
    },
    CallEnded {
        call: Uuid,
        result: Result<Value, String>,
    },
    /// A device's answer. One that nobody waits for is passed over (SBP-L5-04).
    ToolResult {
        epoch: u64,
        call: Uuid,
        result: Result<Value, String>,
    },
    SurfaceGone {
        epoch: u64,
    },
    /// `last_seq`: the position that it was asked for. A report of an earlier one is passed over.
    Packed {
        id: SessionId,
        last_seq: Seq,
        packed: Result<Box<Packed>, Failure>,
    },
    /// The store does not answer a task: whoever waits for a turn is told, and the task goes on.
    StoreBusy,
    /// The gateway stops: nothing new is begun.
    Stop,
    /// A deadline may have passed.
    Deadline,
}
