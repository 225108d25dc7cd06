//! Errors of the store.

use bowline_sbp::error::{Code, Failure};
use bowline_sbp::lifecycle::IllegalChange;

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("there is no such session")]
    NoSession,
    #[error("that session token belongs to another session")]
    TokenTaken,
    #[error("the idempotency key was used for another request")]
    KeyReused,
    #[error("the session has {0} steps; it cannot be forked at a later step")]
    NoStep(u64),
    #[error("the export of this roaming token no longer exists")]
    NoExport,
    #[error("the roaming token was already used")]
    Consumed,
    #[error(
        "another gateway is importing the session with this roaming token; try again in a minute"
    )]
    Reserved,
    #[error("an agent can have at most {0} memories")]
    MemoryFull(u32),
    #[error("another user has that name")]
    NameTaken,
    #[error("there can be at most {1} {0}")]
    TooMany(&'static str, u32),
    #[error(transparent)]
    Illegal(#[from] IllegalChange),
    /// Nothing was stored; a retry may succeed.
    #[error("the database cannot be written: {0}")]
    Unavailable(String),
    /// A flush or an I/O operation failed. Whether the last commit is durable is unknown, and no
    /// further one is acknowledged: the process must exit and recover (G4).
    #[error("the database failed permanently: {0}")]
    Fatal(String),
    /// A row cannot be read back, or does not fit the schema: a retry fails as well.
    #[error("the database contains invalid data: {0}")]
    Corrupt(String),
    /// The store was shut down.
    #[error("the store is closed")]
    Closed,
}

impl From<Error> for Failure {
    /// Maps errors of the store to codes and texts for the caller.
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::NoSession => Code::SessionNotFound,
            Error::TokenTaken | Error::Illegal(_) | Error::NameTaken | Error::Reserved => {
                Code::SessionConflict
            }
            Error::NoStep(_) | Error::MemoryFull(_) | Error::TooMany(..) => Code::InvalidRequest,
            Error::NoExport => Code::TokenInvalid,
            Error::Consumed => Code::TokenConsumed,
            Error::KeyReused => Code::KeyReused,
            Error::Unavailable(_) | Error::Closed => Code::NotNow,
            Error::Fatal(_) | Error::Corrupt(_) => Code::Internal,
        };
        let message = match &error {
            Error::NoSession => "there is no such session here".into(),
            // Texts of the database go to the log, not to the caller.
            Error::Unavailable(_) | Error::Fatal(_) | Error::Corrupt(_) | Error::Closed => {
                tracing::error!(%error, "the store failed");
                "the gateway cannot store right now, and whether this was stored is unknown; try \
                 again with the same Idempotency-Key"
                    .into()
            }
            _ => error.to_string(),
        };
        Failure::new(code, message)
    }
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another bowline is using {path}")]
    InUse { path: String },
    #[error("cannot use the data folder {path}: {reason}")]
    Folder { path: String, reason: String },
    #[error("a restore into {path} did not finish")]
    Restoring { path: String },
    #[error("the database has schema version {found}, and this bowline knows up to {known}")]
    NewerSchema { found: u32, known: u32 },
    #[error("{path} is not a bowline database")]
    Foreign { path: String },
    #[error("a copy into {path} did not finish")]
    Copying { path: String },
    /// A database server that was asked for a connection.
    #[error("{database}: {reason}")]
    Server { database: String, fault: ServerFault, reason: String },
    #[error("cannot open the database: {0}")]
    Database(String),
}

/// What kind of problem there is with a database server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFault {
    /// Nothing answers there, or it does not take connections yet.
    Unreachable,
    /// The user or password is wrong.
    Login,
    NoDatabase,
    /// The user may not do what is needed.
    NoRight,
    /// It has no connection left.
    Full,
    /// Its certificate is not trusted, or it has no TLS.
    Tls,
    /// None that was asked takes writes.
    ReadOnly,
    Other,
}
