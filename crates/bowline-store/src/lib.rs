//! The durable session log.
//!
//! One append-only log per session is the truth; messages, Tether, snapshots and counters are
//! derived from it. [`Store`] is a handful of whole, atomic operations in the language of the
//! domain: a call that returns `Ok` is on disk, one that returns an error left nothing behind,
//! except where the error says the outcome is unknown.

mod entry;
mod error;
mod session;
pub mod sqlite;
mod store;
mod surface;
mod turn;

pub use entry::{Entry, EntryKind, NewEntry};
pub use error::{Error, OpenError};
pub use session::{Created, IdempotencyKey, NewSession, Page, Session, Snapshot, TokenHash};
pub use store::Store;
pub use surface::{Attach, Attached};
pub use turn::{Accepted, Finish, InstanceId, NewTurn, TurnSession, Unfinished};

pub type Result<T, E = Error> = std::result::Result<T, E>;
