//! The durable session log.
//!
//! One append-only log per session is the source of truth; messages, Tether, snapshots and counters
//! are derived from it. [`Store`] is a set of small traits by subject, whose operations are atomic
//! and named in the terms of the domain: a call that returns `Ok` is durable, one that returns an
//! error has stored nothing, except where the error says that the outcome is unknown.

mod about;
mod audit;
pub mod copy;
mod entry;
mod error;
#[doc(hidden)]
pub mod failpoint;
mod family_walk;
mod federation;
mod log_end;
mod log_ranges;
mod memory;
mod naming;
mod pairing;
mod pin;
pub mod postgres;
mod roaming;
mod search;
mod secret;
mod session;
mod size;
pub mod sqlite;
mod store;
mod usage;
mod user;
mod words;

pub use audit::{AuditEntry, AuditQuery};
pub use bowline_sbp::access::CredentialId;
pub use bowline_sbp::message::EntryKind;
pub use bowline_sbp::session::liveness::ReplicaLease;
pub use bowline_sbp::session::{
    Commit, CommitError, DeviceRow, IdempotencyKey, Loaded, NewEntry, NewSession, ReplicaId,
    Snapshot, SnapshotKind, TokenHash, Tokens,
};
pub use entry::Entry;
pub use error::{Error, OpenError, ServerFault};
pub use federation::{
    AnnouncedExport, AskReservation, Forward, KeptMigration, KeptPeer, KeptReservation, Moved,
    NewMigration, Reserving,
};
pub use memory::{Memory, MemoryKind, MemoryOwner, NewMemory, TurnMemories};
pub use pairing::{OfferUsed, PairingOffer, PairingRate};
pub use pin::ToolPin;
pub use roaming::{
    Derived, Edge, EdgeKind, Export, Family, Imported, Member, NewExport, NewFork, NewImport,
    Packed,
};
pub use search::Hit;
pub use secret::StoredSecret;
pub use session::{Arrival, Created, Page, Session};
pub use store::{
    Approvals, Audit, Devices, Federation, Leases, Log, Memories, Pairings, Roaming, Search,
    Secrets, Sessions, Store, Tether, Upkeep, Usage, Users,
};
pub use usage::{Counted, DayOfUse, LiveCount, SpentToday};
pub use user::{SharedSession, User, UserKey};

pub type Result<T, E = Error> = std::result::Result<T, E>;
