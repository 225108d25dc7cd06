//! The audit: appended to, and deleted by age alone.

use bowline_sbp::id::UserId;
use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::rows::{millis, timestamp};
use crate::audit::HOUR;
use crate::{AuditEntry, AuditQuery, Result};

/// The most entries that are deleted at once.
pub(super) const FORGOTTEN_AT_ONCE: u64 = 1000;

pub(super) fn record(conn: &Connection, entries: &[AuditEntry]) -> Result<()> {
    let mut insert = conn.prepare_cached(
        "INSERT INTO audit (at, user, credential, action, object, result, address, times, hour)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (hour, action, result, credential, address, coalesce(user, x''))
             WHERE hour IS NOT NULL
             DO UPDATE SET times = times + ?8, at = max(at, ?1)",
    )?;
    for entry in entries {
        let at = millis(entry.at);
        insert.execute(params![
            at,
            entry.user.as_ref().map(UserId::as_bytes),
            entry.credential,
            entry.action,
            entry.object,
            entry.result,
            entry.address,
            entry.times.min(1 << 48) as i64,
            entry.is_tally.then(|| at.div_euclid(HOUR)),
        ])?;
    }
    Ok(())
}

pub(super) fn read(conn: &Connection, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
    let mut statement = conn.prepare_cached(
        "SELECT at, user, credential, action, object, result, address, times, hour IS NOT NULL
         FROM audit WHERE at >= ?1 AND (?2 IS NULL OR user = ?2)
         ORDER BY at DESC, number DESC LIMIT ?3",
    )?;
    let since = query.since.map_or(i64::MIN, millis);
    let user = query.user.as_ref().map(UserId::as_bytes);
    let mut rows = statement.query(params![since, user, query.limit])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push(AuditEntry {
            at: timestamp(row.get(0)?)?,
            user: row.get::<_, Option<[u8; 16]>>(1)?.map(UserId::from_bytes),
            credential: row.get(2)?,
            action: row.get(3)?,
            object: row.get(4)?,
            result: row.get(5)?,
            address: row.get(6)?,
            times: row.get::<_, i64>(7)?.max(0) as u64,
            is_tally: row.get(8)?,
        });
    }
    Ok(entries)
}

/// Deletes entries from before then; returns their number.
pub(super) fn forget(conn: &Connection, before: Timestamp) -> Result<u64> {
    let deleted = conn
        .prepare_cached(
            "DELETE FROM audit WHERE number IN (SELECT number FROM audit WHERE at < ?1 LIMIT ?2)",
        )?
        .execute(params![millis(before), FORGOTTEN_AT_ONCE as i64])?;
    Ok(deleted as u64)
}
