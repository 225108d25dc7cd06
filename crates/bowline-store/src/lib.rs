//! The durable session log.
//!
//! One append-only log per session is the truth; messages, Tether, snapshots and counters are
//! derived from it. [`Store`] is a handful of whole, atomic operations in the language of the
//! domain: a call that returns `Ok` is on disk, one that returns an error left nothing behind,
//! except where the error says the outcome is unknown.

mod approval;
mod entry;
mod error;
#[doc(hidden)]
pub mod failpoint;
mod memory;
mod roaming;
mod session;
pub mod sqlite;
mod store;
mod surface;
mod turn;

pub use approval::NewApproval;
pub use bowline_sbp::message::EntryKind;
pub use entry::{Entry, NewEntry};
pub use error::{Error, OpenError};
pub use memory::{Memory, MemoryKind, NewMemory};
pub use roaming::{
    Derived, Edge, EdgeKind, Export, Family, Imported, NewExport, NewFork, NewHandoff, NewImport,
    Packed,
};
pub use session::{
    Created, IdempotencyKey, NewSession, Page, Session, Snapshot, SnapshotKind, TokenHash,
};
pub use store::Store;
pub use surface::{Attach, Attached, Forgotten, KnownSurface, NewDeviceToken};
pub use turn::{Accepted, Advance, Finish, InstanceId, NewTurn, TurnSession, Unfinished};

pub type Result<T, E = Error> = std::result::Result<T, E>;
