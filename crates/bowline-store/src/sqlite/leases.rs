//! Replicas and their leases (G19).
//!
//! A data folder is locked by one process: when it is opened, no other replica is alive. So the
//! table is emptied then, and the row of this process never expires.

use bowline_sbp::id::SessionId;
use bowline_sbp::session::{Fence, ReplicaId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use uuid::Uuid;

use super::counts;
use super::rows::millis;
use crate::{ReplicaLease, Result};

/// The folder was just locked: deletes the replicas and attachments of earlier processes.
pub(super) fn take_folder(tx: &Transaction<'_>, at: Timestamp) -> rusqlite::Result<()> {
    tx.execute("DELETE FROM replicas", [])?;
    tx.execute("DELETE FROM replica_counts", [])?;
    tx.execute(
        "UPDATE sessions SET status = CASE status WHEN 'running' THEN 'suspended' ELSE status END,
             version = version + 1, updated_at = ?1
         WHERE key IN (SELECT session FROM attachments)",
        [millis(at)],
    )?;
    tx.execute("DELETE FROM attachments", [])?;
    Ok(())
}

/// Registers a replica: it may commit from now on.
pub(super) fn register(conn: &Connection, me: ReplicaId) -> Result<()> {
    conn.prepare_cached(
        "INSERT INTO replicas (id, dead) VALUES (?1, 0) ON CONFLICT (id) DO NOTHING",
    )?
    .execute([me.0.as_bytes()])?;
    counts::forget_dead(conn)
}

/// Whether a replica may commit.
pub(super) fn is_alive(conn: &Connection, replica: ReplicaId) -> Result<bool> {
    let mut statement = conn.prepare_cached("SELECT 1 FROM replicas WHERE id = ?1 AND NOT dead")?;
    Ok(statement.exists([replica.0.as_bytes()])?)
}

/// The replicas that may commit.
pub(super) fn living(conn: &Connection) -> Result<Vec<ReplicaLease>> {
    let mut statement =
        conn.prepare_cached("SELECT id FROM replicas WHERE NOT dead ORDER BY id")?;
    let found = statement.query_map([], |row| {
        let id = ReplicaId(Uuid::from_bytes(row.get(0)?));
        Ok(ReplicaLease { id, expires_at: None, has_expired: false })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// The live replica that owns a session.
pub(super) fn owner(conn: &Connection, session: SessionId) -> Result<Option<ReplicaId>> {
    let mut statement = conn.prepare_cached(
        "SELECT r.id FROM sessions s JOIN replicas r ON r.id = s.owner AND NOT r.dead
         WHERE s.id = ?1",
    )?;
    let found = statement.query_row([session.as_bytes()], |row| row.get(0)).optional()?;
    Ok(found.map(|id| ReplicaId(Uuid::from_bytes(id))))
}

/// Retires a replica: its later commits are fenced.
pub(super) fn retire(conn: &Connection, replica: ReplicaId) -> Result<()> {
    conn.prepare_cached("UPDATE replicas SET dead = 1 WHERE id = ?1")?
        .execute([replica.0.as_bytes()])?;
    Ok(())
}

/// Releases leases. Ignores those that another replica has taken since.
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
