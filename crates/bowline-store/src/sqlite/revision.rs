//! Counts changes of what gateways keep in memory.
//!
//! Invariant: whatever changes users, keys, shares, tokens of sessions, secrets or definitions of tools, or adds
//! a code that pairs a device,
//! calls [`bump`] in its own transaction.

use rusqlite::Connection;

use crate::Result;

pub(super) fn bump(conn: &Connection) -> Result<()> {
    conn.prepare_cached("UPDATE access_revision SET revision = revision + 1")?.execute([])?;
    Ok(())
}

pub(super) fn read(conn: &Connection) -> Result<u64> {
    let mut statement = conn.prepare_cached("SELECT revision FROM access_revision")?;
    Ok(statement.query_row([], |row| row.get::<_, i64>(0))? as u64)
}
