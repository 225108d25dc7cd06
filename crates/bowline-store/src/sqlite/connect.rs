//! How a connection to the database is set up.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::OpenError;

/// How long a connection waits for another one's lock.
pub(super) const BUSY: Duration = Duration::from_secs(5);
/// Prepared statements cached per connection: more than exist, so that each is prepared once.
const STATEMENTS: usize = 256;
/// How large the write-ahead log grows, in pages of 4 KiB, before a checkpoint.
const CHECKPOINT_PAGES: i64 = 4000;

pub(crate) fn connect(path: &Path, read_only: bool) -> Result<Connection, OpenError> {
    let failed = |error: rusqlite::Error| OpenError::Database(error.to_string());
    let access = if read_only {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    };
    let conn = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(failed)?;
    conn.busy_timeout(BUSY).map_err(failed)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // Query plans must not depend on bound values: a statement with `LIMIT ?` would be prepared
    // again for each value.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failed)?;
    if !read_only {
        let mode: String =
            conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
        if mode != "wal" {
            return Err(OpenError::Database(
                "the file system cannot do write-ahead logging".into(),
            ));
        }
        conn.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        conn.pragma_update(None, "journal_size_limit", 64 << 20).map_err(failed)?;
        // Fewer checkpoints: pages that change often are copied into the file less often.
        conn.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(failed)?;
        // What is deleted is overwritten with zeros, in free pages, too (G23).
        conn.pragma_update(None, "secure_delete", true).map_err(failed)?;
    }
    Ok(conn)
}
