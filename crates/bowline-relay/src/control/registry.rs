//! Durable state: users, their API keys, their daemons and the devices of those, the relays, the
//! signing keys, and the audit log.
//!
//! One SQLite file, opened by the server and by the operator's commands at the same time. Calls
//! block, and each is one transaction: the caller chooses the thread.
//!
//! Invariants
//! - The changes of a call that returns Ok are on disk (G4).
//! - Whether a key, a user or a daemon is revoked is checked inside the transaction that acts on
//!   it, so a revocation applies from its commit on.
//! - The file holds no API key, only hashes. Folder and files are accessible to their owner only,
//!   because the file holds the seeds of the signing keys.

mod audit;
mod daemons;
mod devices;
mod file;
mod keys;
mod relays;
mod retention;
mod schema;
mod terms;
mod users;

use rusqlite::{Connection, Transaction, TransactionBehavior};

pub use super::api_key::KeyHash;
pub use audit::{AuditEvent, Record};
pub use daemons::{DaemonRecord, Listed};
pub use file::{FILE, RegistryOpenError};
pub use keys::{Replaced, Rotated, Signing};
pub use relays::{AssignedRelay, Configured, RelayRecord};
pub use terms::{NewDaemons, PresenceTerms, Renewed, SessionTerms};
pub use users::{RevokedUser, User};

/// An open connection to the registry.
#[derive(Debug)]
pub struct Registry {
    conn: Connection,
}

/// Why a call failed and changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the API key belongs to nobody")]
    UnknownKey,
    #[error("there is no such user")]
    NoUser,
    #[error("there is a user of that name")]
    NameTaken,
    #[error("a user's name has 1 to 64 letters, digits or any of . _ @ + -")]
    BadName,
    #[error("there is no such daemon")]
    NoDaemon,
    #[error("the daemon was revoked")]
    DaemonRevoked,
    #[error("another process of the daemon registered later")]
    Replaced,
    #[error("no relay takes new daemons")]
    NoActiveRelay,
    #[error("there is no such relay")]
    NoRelay,
    #[error("there is a relay of that name or address")]
    RelayTaken,
    #[error("a relay's name, and its region, have 1 to 64 letters, digits or any of . _ -")]
    BadRelayName,
    #[error("a relay's address begins with wss://, or ws:// on this machine")]
    BadRelayUrl,
    #[error("it is the last active relay: its daemons would have nowhere to go")]
    LastRelay,
    #[error("{0} daemons use the relay")]
    RelayInUse(u32),
    #[error("the daemon has no such device")]
    UnknownDevice,
    #[error("a user may have {0} daemons")]
    TooManyDaemons(u32),
    #[error("a user may register {0} new daemons a day")]
    TooManyNewDaemons(u32),
    #[error("the database failed: {0}")]
    Database(String),
    #[error("the registry is closed")]
    Closed,
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.to_string())
    }
}

type Result<T, E = Error> = std::result::Result<T, E>;

impl Registry {
    /// Runs a read-write transaction: all of its changes are committed, or none.
    fn change<T>(&mut self, change: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        // Immediate, because another process may be writing: a transaction that starts with a read
        // could not wait for the write lock later.
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = change(&tx)?;
        tx.commit()?;
        Ok(done)
    }

    /// Runs a read-only transaction, which sees one consistent snapshot.
    fn look<T>(&mut self, look: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let tx = self.conn.transaction()?;
        look(&tx)
    }

    /// Checks that the registry can be written.
    pub fn check(&mut self) -> Result<()> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        Ok(tx.rollback()?)
    }
}
