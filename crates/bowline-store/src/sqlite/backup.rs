//! Copies of a database that may be in use, and what such a copy contains.
//!
//! `VACUUM INTO` rather than SQLite's page-by-page backup: both read one committed state while the
//! gateway goes on writing, but the page copy starts over whenever another process writes, and it
//! copies free pages. This one writes only what is there, so that nothing erased is in the copy
//! (G23). Until it is done, the gateway's write-ahead log cannot start over and grows.
//!
//! Works on any of our databases: the control plane has one, too.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::connect::BUSY;
use super::folder::make_private_file;
use super::{schema, wal, words};
use crate::OpenError;

/// Why a database was not copied or checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    #[error("the disk is full")]
    Full,
    #[error("the database is damaged: {0}")]
    Damaged(String),
    #[error("the database cannot be read: {0}")]
    Database(String),
}

impl From<rusqlite::Error> for CopyError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged(error.to_string())
            }
            _ => Self::Database(error.to_string()),
        }
    }
}

/// What is in a gateway's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    pub schema_version: u32,
    pub sessions: u64,
}

/// Copies a database to a new file: one committed state, readable by its owner only.
pub fn copy(from: &Path, to: &Path) -> Result<(), CopyError> {
    let place = to
        .to_str()
        .ok_or_else(|| CopyError::Database(format!("{} is not a path in UTF-8", to.display())))?;
    let unwritable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::StorageFull => CopyError::Full,
        _ => CopyError::Database(format!("{}: {error}", to.display())),
    };
    make_private_file(to).map_err(unwritable)?;
    read_only(from)?.execute("VACUUM INTO ?1", [place])?;
    let copy = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // The copy has no log, and misses none that its source had.
    wal::unmark(&copy, wal::is_missing(from))?;
    words::purge_copy(&copy)?;
    drop(copy);
    std::fs::File::open(to).and_then(|file| file.sync_all()).map_err(unwritable)
}

/// What a gateway's database contains; an error if this version cannot use it.
pub fn contents(path: &Path) -> Result<Contents, OpenError> {
    let failed = |error: CopyError| OpenError::Database(error.to_string());
    let conn = read_only(path).map_err(failed)?;
    let schema_version = schema::version(&conn, &path.display().to_string())?;
    let sessions = conn.query_row("SELECT count(*) FROM sessions", [], |row| row.get::<_, i64>(0));
    let sessions = sessions.map_err(|error| failed(error.into()))?.unsigned_abs();
    Ok(Contents { schema_version, sessions })
}

/// Reads all of a database and checks it against itself.
pub fn check(path: &Path) -> Result<(), CopyError> {
    let verdict: String =
        read_only(path)?.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" { Ok(()) } else { Err(CopyError::Damaged(verdict)) }
}

/// A connection that leaves the database and its log as they are, also if it is the last to close.
fn read_only(path: &Path) -> Result<Connection, CopyError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(conn)
}
