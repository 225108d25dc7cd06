//! What can go wrong with a statement or a transaction, and what that means for the caller.
//!
//! One table by SQLSTATE. The details of an error of the database may contain what a caller sent: only its
//! code and, where that is safe, its message are passed on.

use std::io::ErrorKind;

use bowline_net::outbound;
use deadpool_postgres::PoolError;
use tokio_postgres::error::{DbError, SqlState};

use super::connect::PostgresConfig;
use crate::{Error, OpenError, ServerFault};

/// The result of a part of a transaction.
pub(super) type Attempt<T> = std::result::Result<T, Fault>;

/// Why a transaction did not succeed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The operation refuses. Nothing is stored.
    Refused(Error),
    /// A statement failed. Nothing is stored.
    Database(tokio_postgres::Error),
    /// Something that the operation had read has changed meanwhile. Nothing is stored.
    Changed,
    /// The connection was lost before the answer to `COMMIT` came.
    Unknown(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Refused(error)
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Fault::Database(error)
    }
}

impl Fault {
    /// Whether the same transaction may succeed if it is run again at once.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Fault::Changed => true,
            Fault::Database(error) => matches!(
                Class::of(error),
                // A blob was deleted between a look at it and its new use: the only foreign key there is.
                Class::Conflict | Class::Lost | Class::Violation(SqlState::FOREIGN_KEY_VIOLATION)
            ),
            Fault::Refused(_) | Fault::Unknown(_) => false,
        }
    }

    /// The unique index that a row violates, if that is what failed.
    pub(super) fn duplicate(&self) -> Option<&str> {
        let Fault::Database(error) = self else { return None };
        let error = error.as_db_error()?;
        (*error.code() == SqlState::UNIQUE_VIOLATION).then(|| error.constraint()).flatten()
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error,
            Fault::Database(error) => error_of(&error),
            Fault::Changed => Error::Unavailable("another process changed the same rows".into()),
            Fault::Unknown(reason) => {
                Error::Unavailable(format!("whether it was stored is unknown: {reason}"))
            }
        }
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Fault::Database(error),
            PoolError::Closed => Fault::Refused(Error::Closed),
            PoolError::Timeout(_) => {
                Fault::Refused(Error::Unavailable("no connection to the database is free".into()))
            }
            PoolError::PostCreateHook(_) | PoolError::NoRuntimeSpecified => {
                Fault::Refused(Error::Unavailable("the connections cannot be used".into()))
            }
        }
    }
}

/// What kind of failure an error of the driver is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Class {
    /// Serialisation failure or deadlock: the transaction was rolled back and can be run again.
    Conflict,
    /// The connection is gone.
    Lost,
    /// The server cannot do it now: it starts, stops, has no resources, or waited too long for a lock.
    Unavailable,
    /// A row does not fit the schema.
    Violation(SqlState),
    /// A statement or a value is wrong, or the data are damaged.
    Invalid,
}

impl Class {
    pub(super) fn of(error: &tokio_postgres::Error) -> Self {
        let Some(state) = error.code() else {
            // Values that cannot be converted are wrong for ever; everything else is the connection.
            let is_value = error.to_string().starts_with("error serializing")
                || error.to_string().starts_with("error deserializing");
            return if is_value { Class::Invalid } else { Class::Lost };
        };
        match (state.code(), state.code().get(..2).unwrap_or_default()) {
            ("40001" | "40P01", _) => Class::Conflict,
            // Shutdown, crash, "cannot connect now", and idle too long within a transaction.
            ("57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04", _) | (_, "08") => {
                Class::Lost
            }
            // A standby after a change of roles, a lock, a cancelled statement, passwords, no such database.
            ("25006" | "55P03" | "57014" | "42501" | "3D000", _) | (_, "28" | "53" | "58") => {
                Class::Unavailable
            }
            (_, "23") => Class::Violation(state.clone()),
            _ => Class::Invalid,
        }
    }
}

/// An error of the driver, as one of the store.
pub(super) fn error_of(error: &tokio_postgres::Error) -> Error {
    let text = text_of(error);
    match Class::of(error) {
        Class::Conflict | Class::Lost | Class::Unavailable => Error::Unavailable(text),
        Class::Violation(_) | Class::Invalid => Error::Corrupt(text),
    }
}

/// Why no connection was made, and what that means for who configured it.
pub(crate) fn open_error(config: &PostgresConfig, error: &tokio_postgres::Error) -> OpenError {
    let code = error.code().map(SqlState::code);
    if takes_no_writes(error) {
        let reason = "this server is a standby, or its databases are read-only".to_owned();
        return OpenError::Server { database: config.name(), fault: ServerFault::ReadOnly, reason };
    }
    if let Some(why) = outbound::untrusted(error) {
        let reason = format!("the certificate of the server is not trusted: {why}");
        return OpenError::Server { database: config.name(), fault: ServerFault::Tls, reason };
    }
    let fault = match code.map(|code| (code, code.get(..2).unwrap_or_default())) {
        Some((_, "28")) => ServerFault::Login,
        Some(("3D000", _)) => ServerFault::NoDatabase,
        Some(("42501", _)) => ServerFault::NoRight,
        Some(("53300", _)) => ServerFault::Full,
        Some(("57P03", _)) => ServerFault::Unreachable,
        Some(_) => ServerFault::Other,
        None if error.to_string().contains("TLS") => ServerFault::Tls,
        // The driver needs one, and the URL has none.
        None if error.to_string().contains("password") => ServerFault::Login,
        None => ServerFault::Unreachable,
    };
    OpenError::Server { database: config.name(), fault, reason: text_of(error) }
}

/// Whether a server answered that it cannot be written: the driver makes that an I/O error.
fn takes_no_writes(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error);
    let source = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    // One of the operating system has a number.
    let by_driver = source.filter(|io| io.raw_os_error().is_none());
    by_driver.is_some_and(|io| io.kind() == ErrorKind::PermissionDenied)
}

/// What may be told of an error: no value, no statement.
pub(crate) fn text_of(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => text_of_server(error),
        None if error.is_closed() => "the connection to the database was closed".into(),
        None => {
            let reason = std::error::Error::source(error)
                .and_then(|source| source.downcast_ref::<std::io::Error>())
                .map(|reason| format!(": {reason}"));
            format!("{error}{}", reason.unwrap_or_default())
        }
    }
}

fn text_of_server(error: &DbError) -> String {
    let code = error.code().code();
    match code.get(..2) {
        // The messages of data exceptions quote the value.
        Some("22") => format!("a value does not fit ({code})"),
        _ => format!("{} ({code})", error.message()),
    }
}
