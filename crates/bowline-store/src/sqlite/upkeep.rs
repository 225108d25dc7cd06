//! Whose turn it is to do a periodic task.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::rows::millis;
use crate::Result;

/// Whether nobody has done this task for that long.
pub(super) fn take(conn: &Connection, task: &str, every: Duration, now: Timestamp) -> Result<bool> {
    let every = i64::try_from(every.as_millis()).unwrap_or(i64::MAX / 2);
    // A clock that was set back must not stop it for long.
    let taken = conn
        .prepare_cached(
            "INSERT INTO upkeep (task, done_at) VALUES (?1, ?2)
             ON CONFLICT (task) DO UPDATE SET done_at = ?2
             WHERE abs(?2 - done_at) >= ?3",
        )?
        .execute(params![task, millis(now), every])?;
    Ok(taken == 1)
}
