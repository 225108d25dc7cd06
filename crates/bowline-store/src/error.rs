//! Why the store did not do what it was asked.

use bowline_sbp::id::SessionId;
use bowline_sbp::lifecycle::{IllegalChange, Status};

/// What the store answers instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("there is no such session")]
    NoSession,
    #[error("that session token belongs to another session")]
    TokenTaken,
    #[error("the idempotency key was used for another request")]
    KeyReused,
    #[error("the session is {0} and takes no more turns")]
    Ended(Status),
    #[error("the session was handed over to {0} and takes no more turns")]
    HandedOver(SessionId),
    #[error("the session has {0} steps; it cannot be forked further on")]
    NoStep(u64),
    #[error("there is nothing behind this roaming token any more")]
    NoExport,
    #[error("the roaming token was already used")]
    Consumed,
    /// The session has grown since it was looked at; look again.
    #[error("the session has moved on")]
    MovedOn,
    #[error("the device's token was revoked or has expired")]
    Revoked,
    #[error("a session has at most {0} devices with tokens")]
    TooManyDevices(u32),
    #[error("an agent remembers at most {0} things")]
    MemoryFull(u32),
    #[error(transparent)]
    Illegal(#[from] IllegalChange),
    /// Another instance owns the turn now, or it has ended already.
    #[error("the turn is no longer this instance's to finish")]
    Superseded,
    /// Nothing was stored; it may work again later by itself.
    #[error("the database cannot be written: {0}")]
    Unavailable(String),
    /// The disk did not keep its word. Whether the last write is there is unknown, and nothing
    /// is acknowledged any more: the process must exit and recover (G4).
    #[error("the database failed for good: {0}")]
    Fatal(String),
    /// What is on disk is not what was written there.
    #[error("the database holds something unreadable: {0}")]
    Corrupt(String),
    /// The store was shut down.
    #[error("the store is closed")]
    Closed,
}

/// Why a store cannot be opened at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another bowline is using {path}")]
    InUse { path: String },
    #[error("cannot use the data folder {path}: {reason}")]
    Folder { path: String, reason: String },
    #[error("the database has schema version {found}, and this bowline knows up to {known}")]
    NewerSchema { found: u32, known: u32 },
    #[error("{path} is not a bowline database")]
    Foreign { path: String },
    #[error("cannot open the database: {0}")]
    Database(String),
}
