//! The registry's folder and file.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::schema;

/// The database's name inside the data folder.
pub const FILE: &str = "tracker.db";
/// How long a connection waits while another one writes (SQLite's busy timeout).
const BUSY: Duration = Duration::from_secs(5);
/// Pages kept in memory, in KiB: of the writer, and of each reader.
const WRITER_CACHE: i64 = 16 << 10;
const READER_CACHE: i64 = 4 << 10;

/// Why the registry cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryOpenError {
    #[error("cannot use the data folder {folder}: {reason}")]
    Folder { folder: String, reason: String },
    #[error("the database has schema version {found}, and this bowline knows up to {known}")]
    NewerSchema { found: usize, known: usize },
    #[error("{path} is not a tracker's database")]
    Foreign { path: String },
    #[error("cannot open the database: {0}")]
    Database(String),
}

pub(super) fn open(folder: &Path) -> Result<Connection, RegistryOpenError> {
    let unusable = |error: io::Error| RegistryOpenError::Folder {
        folder: folder.display().to_string(),
        reason: error.to_string(),
    };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unusable)?;
    let path = folder.join(FILE);
    let mut options = fs::OpenOptions::new();
    // SQLite creates the files beside it with the permissions of this one.
    options.create(true).append(true).mode(0o600).open(&path).map_err(unusable)?;
    let mut conn = connect(&path, WRITER_CACHE)?;
    let failed = |error: rusqlite::Error| RegistryOpenError::Database(error.to_string());
    let mode: String =
        conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        let reason = "the file system cannot do write-ahead logging";
        return Err(RegistryOpenError::Database(reason.into()));
    }
    // What a power cut takes is announced again within the day.
    conn.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
    conn.pragma_update(None, "journal_size_limit", 16 << 20).map_err(failed)?;
    schema::migrate(&mut conn, &path.display().to_string())?;
    Ok(conn)
}

pub(super) fn reader(folder: &Path) -> Result<Connection, RegistryOpenError> {
    let conn = connect(&folder.join(FILE), READER_CACHE)?;
    let failed = |error: rusqlite::Error| RegistryOpenError::Database(error.to_string());
    conn.pragma_update(None, "query_only", true).map_err(failed)?;
    Ok(conn)
}

fn connect(path: &Path, cache: i64) -> Result<Connection, RegistryOpenError> {
    let failed = |error: rusqlite::Error| RegistryOpenError::Database(error.to_string());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(failed)?;
    conn.busy_timeout(BUSY).map_err(failed)?;
    conn.pragma_update(None, "cache_size", -cache).map_err(failed)?;
    Ok(conn)
}
