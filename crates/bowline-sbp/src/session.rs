//! A live session as its one owner sees it, without I/O (G19).
//!
//! [`Machine`] decides: an input and the time give writes and then effects. [`Actor`] adds the commit
//! protocol around it: one commit in flight, effects only after it, what happens when it is fenced,
//! refused or its fate unknown. The gateway drives an `Actor` with a task, an inbox and a store;
//! the simulation drives several against one model of a store.
//!
//! Invariants
//! - "Told before written" cannot be expressed: effects are handed out after their commit.
//! - Every effect follows again from loading the session, or is a reply whose sender asks again.
//! - Senders mint ids (turns, calls, approvals, sockets), so a command can be repeated.
//! - Commands, facts, replies and [`LiveState`] are plain serialisable data.

mod actor;
mod commit;
mod effect;
mod input;
mod live;
mod log;
mod machine;
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
pub use live::{Closed, DeviceCall, LiveState, LiveSurface, LiveTurn};
pub use log::{NewEntry, Placed};
pub use machine::{Machine, SessionLimits, Step};
pub use request::{Origin, TurnRequest};
pub use row::{
    AskedRow, AttachmentRow, DeviceRow, Head, IdempotencyKey, NewSession, Snapshot, SnapshotKind,
    TokenHash, Tokens, TurnRow,
};
pub use turn::{Answered, Done, Outcome, Permission, PlannedCall, Replanned, RoundEnd, Work};
