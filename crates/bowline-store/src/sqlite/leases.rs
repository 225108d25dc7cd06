//! Who is alive, and who owns what (G19).
//!
//! A data folder belongs to one process: whoever opens it knows that all others are gone. So the
//! table is emptied then, and the row of this process never expires.

use bowline_sbp::id::SessionId;
use bowline_sbp::session::{Fence, ReplicaId};
use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::rows::millis;
use crate::Result;

/// The folder was just locked: whoever had it before is gone, and so are its surfaces.
pub(super) fn take_folder(conn: &Connection, at: Timestamp) -> rusqlite::Result<()> {
    let tx = conn.unchecked_transaction()?;
    tx.execute("DELETE FROM replicas", [])?;
    tx.execute(
        "UPDATE sessions SET status = CASE status WHEN 'running' THEN 'suspended' ELSE status END,
             version = version + 1, updated_at = ?1
         WHERE key IN (SELECT session FROM attachments)",
        [millis(at)],
    )?;
    tx.execute("DELETE FROM attachments", [])?;
    tx.commit()
}

/// A replica may write from now on.
pub(super) fn register(conn: &Connection, me: ReplicaId) -> Result<()> {
    conn.prepare_cached(
        "INSERT INTO replicas (id, dead) VALUES (?1, 0) ON CONFLICT (id) DO NOTHING",
    )?
    .execute([me.0.as_bytes()])?;
    Ok(())
}

/// A replica writes no more: whatever it still sends is refused.
pub(super) fn retire(conn: &Connection, replica: ReplicaId) -> Result<()> {
    conn.prepare_cached("UPDATE replicas SET dead = 1 WHERE id = ?1")?
        .execute([replica.0.as_bytes()])?;
    Ok(())
}

/// Gives sessions back. One that somebody else has taken meanwhile is left alone.
pub(super) fn release(
    conn: &Connection,
    me: ReplicaId,
    sessions: &[(SessionId, Fence)],
) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "UPDATE sessions SET owner = NULL WHERE id = ?1 AND owner = ?2 AND fence = ?3",
    )?;
    for (session, fence) in sessions {
        statement.execute(params![session.as_bytes(), me.0.as_bytes(), *fence as i64])?;
    }
    Ok(())
}
