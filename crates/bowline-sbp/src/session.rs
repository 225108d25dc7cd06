//! A live session: its state machine and its commit protocol, without I/O (G19).
//!
//! [`Machine`] decides: it turns an input and the current time into writes and effects. [`Actor`]
//! adds the commit protocol: one commit in flight, effects only after it, and what happens when the
//! commit is fenced, not stored, or its outcome unknown. The gateway drives an `Actor` with a task,
//! an inbox and a store; the simulation drives several against one model of a store.
//!
//! Invariants
//! - Effects are handed out only after their commit: a client is never told what is not stored.
//! - Every effect is produced again when the session is loaded, or is a reply to a command that its
//!   sender retries.
//! - Senders choose the ids (turns, calls, approvals, sockets), so a command can be retried.
//! - Commands, facts, replies and [`LiveState`] are plain serialisable data.

mod actor;
mod commit;
mod effect;
mod input;
mod link;
mod live;
pub mod liveness;
mod log;
mod machine;
mod open_call;
mod request;
mod row;
mod turn;

pub use actor::{Actor, After, Next};
pub use commit::{Commit, CommitError, Fence, Lease, Loaded, ReplicaId, Write};
pub use effect::{Effect, Refusal, Reply};
pub use input::{
    Attach, Attached, Command, CommandId, DeviceChange, Fact, HandOff, HandedOff, Input, KnownKey,
    Now, Packed, Submit,
};
pub use link::{Arrival, Intake, LinkSender, Pace};
pub use live::{Closed, DeviceCall, LiveState, LiveSurface, LiveTurn};
pub use log::{NewEntry, Placed};
pub use machine::{Machine, SessionLimits, Step};
pub use open_call::{Allowed, Consent, OpenCall, OpenCalls, SentCall};
pub use request::{Author, Origin, RequestDigest, TurnRequest};
pub use row::{
    AskedRow, AttachmentRow, DeviceRow, GrantRow, Head, IdempotencyKey, NewSession, Snapshot,
    SnapshotKind, TokenHash, Tokens, TurnRow,
};
pub use turn::{
    Answered, CALL_INTERRUPTED, Done, Outcome, Permission, PlannedCall, Replanned, RoundEnd, Work,
};
