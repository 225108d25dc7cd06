//! Trunks: the log entries of deleted sessions that forks still share.
//!
//! Apart, because deleting a session must never delete data of another one. A trunk has no id, no
//! token and no counters; it is deleted with the last fork that needs it.
//!
//! Invariants
//! - For all entries there is either a session or a trunk with their key, never both.
//! - The key of a trunk is not reused: SQLite assigns a new session a key above all others, so a
//!   fork's key is above its base's, and above every trunk there is a session.

use bowline_sbp::id::Seq;
use rusqlite::Connection;

use super::rows::{Key, place};
use super::{blobs, words};
use crate::Result;

/// Deletes the row of a session; entries that forks share become a trunk.
pub(super) fn leave(conn: &Connection, key: Key) -> Result<()> {
    conn.prepare_cached(
        "INSERT INTO trunks (key, agent_id, base_key, base_seq)
         SELECT key, agent_id, base_key, base_seq FROM sessions WHERE key = ?1",
    )?
    .execute([key])?;
    conn.prepare_cached("DELETE FROM sessions WHERE key = ?1")?.execute([key])?;
    prune(conn, key)
}

/// Deletes the entries of a trunk that no fork shares; if none is left, also the trunk, and
/// continues with its base.
fn prune(conn: &Connection, mut trunk: Key) -> Result<()> {
    loop {
        let shared = shared_up_to(conn, trunk)?;
        words::forget(conn, trunk, shared.unwrap_or(0))?;
        blobs::delete_uses(conn, place(trunk, shared.unwrap_or(0)) + 1, place(trunk + 1, 0) - 1)?;
        conn.prepare_cached("DELETE FROM entries WHERE place > ?1 AND place < ?2")?
            .execute([place(trunk, shared.unwrap_or(0)), place(trunk + 1, 0)])?;
        if shared.is_some() {
            return Ok(());
        }
        let base: Option<Key> = conn
            .prepare_cached("DELETE FROM trunks WHERE key = ?1 RETURNING base_key")?
            .query_row([trunk], |row| row.get(0))?;
        match base {
            Some(base) if is_trunk(conn, base)? => trunk = base,
            _ => return Ok(()),
        }
    }
}

/// The last position of this log that any fork shares.
fn shared_up_to(conn: &Connection, key: Key) -> Result<Option<Seq>> {
    let shared: Option<i64> = conn
        .prepare_cached(
            "SELECT max(shared) FROM (
                 SELECT max(base_seq) AS shared FROM sessions WHERE base_key = ?1
                 UNION ALL SELECT max(base_seq) FROM trunks WHERE base_key = ?1)",
        )?
        .query_row([key], |row| row.get(0))?;
    Ok(shared.map(|seq| seq as Seq))
}

fn is_trunk(conn: &Connection, key: Key) -> Result<bool> {
    Ok(conn.prepare_cached("SELECT 1 FROM trunks WHERE key = ?1")?.exists([key])?)
}
