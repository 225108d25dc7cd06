//! Locks of what has no row to lock, by number. Each is released when its transaction ends.
//!
//! The first number says what is locked, the second which one: a hash, so two may share a lock, and
//! then wait for each other without need.

use super::error::Attempt;
use super::pool::Connection;

/// What is locked. The lock of migrations is in `schema`.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// The memories of one agent of one user.
    Memories = 1,
    /// The key of a paired device.
    Device = 2,
    /// The index of words.
    Words = 3,
}

/// One at a time adds memories of an agent, so that they can be counted.
pub(super) async fn memories(tx: &Connection, user: uuid::Uuid, agent: &str) -> Attempt<()> {
    let name = format!("{user} {agent}");
    tx.query(LOCK, &[&(Kind::Memories as i32), &name]).await.map(drop)
}

/// One at a time adds the key of a device.
pub(super) async fn device(tx: &Connection, device: &[u8; 32]) -> Attempt<()> {
    let name = format!("{device:?}");
    tx.query(LOCK, &[&(Kind::Device as i32), &name]).await.map(drop)
}

/// Of all replicas one indexes words. Whether it is this one.
pub(super) async fn try_words(tx: &Connection) -> Attempt<bool> {
    let sql = "SELECT pg_try_advisory_xact_lock($1, hashtext(current_schema()))";
    Ok(tx.query_one(sql, &[&(Kind::Words as i32)]).await?.try_get(0)?)
}

/// Databases have locks of their own; schemas in one database share them.
const LOCK: &str = "SELECT pg_advisory_xact_lock($1, hashtext(current_schema() || $2))";
