//! Why a database was not copied or checked.

use crate::OpenError;

/// Why a copy or check was refused or failed. Names of databases show no user and no password.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("{database}: {error}")]
    Open { database: String, error: OpenError },
    #[error("{0} holds no bowline database")]
    Missing(String),
    #[error("{database} has schema version {found}, and this bowline copies version {known}")]
    OlderSchema { database: String, found: u32, known: u32 },
    #[error("{database} is used by {replicas} running gateway(s)")]
    Alive { database: String, replicas: i64 },
    #[error("another copy into {0} is running")]
    Running(String),
    #[error("{database} is not empty: it has rows in `{table}`")]
    NotEmpty { database: String, table: &'static str },
    #[error("{database} holds an unfinished copy of {source_name}")]
    OtherSource { database: String, source_name: String },
    #[error("source and target are the same database")]
    Same,
    #[error(
        "the copy differs from its source in `{table}`: {source_rows} rows there, {target_rows} here{}",
        if source_rows == target_rows { ", with other contents" } else { "" }
    )]
    Differs { table: &'static str, source_rows: u64, target_rows: u64 },
    #[error("the log of session {0} differs from its source")]
    LogDiffers(String),
    #[error("a blob's bytes do not have the hash that it is stored under")]
    BlobDiffers,
    #[error("{database}: {reason}")]
    Database { database: String, reason: String },
}

impl CopyError {
    /// What the user can do about it, unless an error of opening says more.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Open { .. } | Self::Database { .. } => {
                "check that the database can be reached with `bowline store check`"
            }
            Self::Missing(_) => "name the data folder that has bowline.db",
            Self::OlderSchema { .. } => "bring it up to date with `bowline store migrate` first",
            Self::Alive { .. } => "stop every gateway that uses it, then copy again",
            Self::Running(_) => "wait until it has ended",
            Self::NotEmpty { .. } => {
                "copy into a new database, a new schema (?schema=NAME) or a new folder"
            }
            Self::OtherSource { .. } => "empty the target, or copy again from the same source",
            Self::Same => "name two different databases",
            Self::Differs { .. } | Self::LogDiffers(_) => {
                "the source was written while it was copied, or between two tries: stop its gateway, empty \
                 the target and copy again"
            }
            Self::BlobDiffers => "the database is damaged: restore it from a backup",
        }
    }
}
