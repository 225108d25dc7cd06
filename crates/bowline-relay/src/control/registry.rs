//! What has to last: users, their keys, their daemons, the signing keys, and who did what.
//!
//! One SQLite file, which the server and the owner's commands open at the same time. Blocking, and
//! one transaction a call: the caller decides on which thread.
//!
//! Invariants
//! - A call that returns Ok is on disk (G4).
//! - Whether a key, a user or a daemon is in force is asked inside the transaction that acts on it,
//!   so a revocation counts from its commit on.
//! - No API key is in the file, only hashes; folder and files are for their owner alone, because
//!   the seeds of the signing keys are in there.

mod audit;
mod daemons;
mod file;
mod keys;
mod schema;
mod users;

use rusqlite::{Connection, Transaction, TransactionBehavior};

pub use super::api_key::KeyHash;
pub use audit::{AuditEvent, Record};
pub use daemons::{DaemonRecord, Listed, Renewed};
pub use file::{FILE, RegistryOpenError};
pub use keys::{Replaced, Rotated, Signing};
pub use users::{RevokedUser, User};

/// The registry, as one process has it open.
#[derive(Debug)]
pub struct Registry {
    conn: Connection,
}

/// Why a call did nothing.
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
    #[error("a user may have {0} daemons")]
    TooManyDaemons(u32),
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
    /// Does all of it, or nothing.
    fn change<T>(&mut self, change: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        // Immediate: another process may be writing, and a read that turns into a write could not
        // wait for it.
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = change(&tx)?;
        tx.commit()?;
        Ok(done)
    }

    /// Reads what belongs to one instant.
    fn look<T>(&mut self, look: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let tx = self.conn.transaction()?;
        look(&tx)
    }

    /// Whether it can be written.
    pub fn check(&mut self) -> Result<()> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        Ok(tx.rollback()?)
    }
}
