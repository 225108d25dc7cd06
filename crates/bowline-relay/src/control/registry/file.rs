//! The registry's folder and file: created private, and refused if others have access.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{Registry, keys, retention, schema};
use crate::control::clock;

/// The database's name inside the data folder.
pub const FILE: &str = "control.db";
/// How long one process waits while another writes (SQLite's busy timeout).
const BUSY: Duration = Duration::from_secs(5);
const WAL_TRIES: u32 = 100;

/// Why the registry cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryOpenError {
    #[error("there is no control plane in {folder}")]
    Missing { folder: String },
    #[error("cannot use the data folder {folder}: {reason}")]
    Folder { folder: String, reason: String },
    #[error("{path} can be used by others (mode {mode:03o}), and there are signing keys in it")]
    Exposed { path: String, mode: u32 },
    #[error("the database has schema version {found}, and this bowline knows up to {known}")]
    NewerSchema { found: u32, known: u32 },
    #[error("{path} is not a control plane's database")]
    Foreign { path: String },
    #[error("cannot open the database: {0}")]
    Database(String),
}

impl Registry {
    /// Opens the registry in `folder`, and creates both as needed.
    pub fn open(folder: &Path) -> Result<Self, RegistryOpenError> {
        let unusable = |error: std::io::Error| RegistryOpenError::Folder {
            folder: folder.display().to_string(),
            reason: error.to_string(),
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unusable)?;
        // Others may be able to list an existing folder, but not to replace its files.
        check(folder, 0o022)?;
        let path = folder.join(FILE);
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600).open(&path).map_err(unusable)?;
        // SQLite creates the files beside it with the permissions of this one.
        for name in ["", "-wal", "-shm"] {
            check(&PathBuf::from(format!("{}{name}", path.display())), 0o077)?;
        }
        let mut conn = connect(&path)?;
        schema::migrate(&mut conn, &path.display().to_string())?;
        let mut registry = Self { conn };
        registry
            .change(|tx| {
                let now = clock::now();
                retention::compact(tx, now, retention::AT_ONCE)?;
                keys::make_first(tx, now)
            })
            .map_err(|error| RegistryOpenError::Database(error.to_string()))?;
        Ok(registry)
    }

    /// Opens the registry in `folder`; fails if there is none.
    pub fn open_existing(folder: &Path) -> Result<Self, RegistryOpenError> {
        if !folder.join(FILE).exists() {
            return Err(RegistryOpenError::Missing { folder: folder.display().to_string() });
        }
        Self::open(folder)
    }
}

/// Refuses a path that has one of the forbidden permission bits. A missing file is fine: the
/// process that closes the database last removes the files beside it, at any time.
fn check(path: &Path, forbidden: u32) -> Result<(), RegistryOpenError> {
    let shown = path.display().to_string();
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(RegistryOpenError::Folder { folder: shown, reason: error.to_string() });
        }
    };
    let mode = found.permissions().mode() & 0o777;
    if mode & forbidden == 0 {
        Ok(())
    } else {
        Err(RegistryOpenError::Exposed { path: shown, mode })
    }
}

fn connect(path: &Path) -> Result<Connection, RegistryOpenError> {
    let failed = |error: rusqlite::Error| RegistryOpenError::Database(error.to_string());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(failed)?;
    conn.busy_timeout(BUSY).map_err(failed)?;
    write_ahead(&conn)?;
    conn.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    conn.pragma_update(None, "foreign_keys", true).map_err(failed)?;
    // Deleted data is overwritten: a retired key's seed must not stay in a free page.
    conn.pragma_update(None, "secure_delete", true).map_err(failed)?;
    conn.pragma_update(None, "journal_size_limit", 4 << 20).map_err(failed)?;
    Ok(conn)
}

/// Turns on write-ahead logging. This needs an exclusive lock for a moment, and SQLite does not
/// wait for it when another process does the same, so it is retried here.
fn write_ahead(conn: &Connection) -> Result<(), RegistryOpenError> {
    let mut tries = 0;
    loop {
        let mode = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(_) => {
                let reason = "the file system cannot do write-ahead logging";
                return Err(RegistryOpenError::Database(reason.into()));
            }
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && tries < WAL_TRIES =>
            {
                tries += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(RegistryOpenError::Database(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_went_away_meanwhile_is_no_reason_to_refuse() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(check(&folder.path().join("control.db-shm"), 0o077), Ok(()));
    }
}
