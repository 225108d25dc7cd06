//! The audit: appended to, and deleted by age alone.

use std::collections::BTreeMap;

use bowline_sbp::id::UserId;
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::Postgres;
use super::error::Attempt;
use super::pool::Connection;
use super::rows::{self, millis};
use super::text::stored;
use crate::audit::HOUR;
use crate::{Audit, AuditEntry, AuditQuery, Result};

/// The most entries that are deleted at once.
pub(super) const FORGOTTEN_AT_ONCE: u64 = 1000;
/// The most times that one entry counts.
const MOST_TIMES: u64 = 1 << 48;

#[async_trait::async_trait]
impl Audit for Postgres {
    async fn record(&self, entries: Vec<AuditEntry>) -> Result<()> {
        let entries = &entries;
        self.pool.write(move |tx| async move { record(&tx, entries).await }).await
    }

    fn record_later(&self, entries: Vec<AuditEntry>) {
        self.later.add(|waiting| waiting.record(entries));
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        let query = &query;
        self.pool.read(move |db| async move { read(&db, query).await }).await
    }
}

/// What makes two tallies the same one, in the order in which rows are locked.
type Tally<'a> = (i64, &'a str, &'a str, &'a str, &'a str, Option<Uuid>);

pub(super) async fn record(db: &Connection, entries: &[AuditEntry]) -> Attempt<()> {
    // One statement cannot add to a row twice.
    let mut tallies: BTreeMap<Tally<'_>, (AuditEntry, i64)> = BTreeMap::new();
    let mut rows = Vec::new();
    for entry in entries {
        if !entry.is_tally {
            rows.push((entry.clone(), None));
            continue;
        }
        let AuditEntry { action, result, credential, address, .. } = entry;
        let hour = millis(entry.at).div_euclid(HOUR);
        let tally = (hour, &**action, &**result, &**credential, &**address, user_of(entry));
        let (sum, _) = tallies
            .entry(tally)
            .or_insert_with(|| (AuditEntry { times: 0, ..entry.clone() }, hour));
        sum.times = sum.times.saturating_add(entry.times);
        sum.at = sum.at.max(entry.at);
    }
    rows.extend(tallies.into_values().map(|(entry, hour)| (entry, Some(hour))));
    if rows.is_empty() {
        return Ok(());
    }
    let ats: Vec<_> = rows.iter().map(|(entry, _)| millis(entry.at)).collect();
    let users: Vec<_> = rows.iter().map(|(entry, _)| user_of(entry)).collect();
    let times: Vec<_> = rows.iter().map(|(entry, _)| entry.times.min(MOST_TIMES) as i64).collect();
    let hours: Vec<_> = rows.iter().map(|(_, hour)| *hour).collect();
    let texts = |of: fn(&AuditEntry) -> &str| -> Vec<_> {
        rows.iter().map(|(entry, _)| stored(of(entry))).collect()
    };
    db.execute(
        "INSERT INTO audit AS a
             (at, user_id, credential, action, object, result, address, times, hour)
         SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::text[], $5::text[],
                              $6::text[], $7::text[], $8::bigint[], $9::bigint[])
         ON CONFLICT (hour, action, result, credential, address, coalesce(user_id,
                      'ffffffff-ffff-ffff-ffff-ffffffffffff')) WHERE hour IS NOT NULL
             DO UPDATE SET times = a.times + excluded.times, at = greatest(a.at, excluded.at)",
        &[
            &ats,
            &users,
            &texts(|entry| &entry.credential),
            &texts(|entry| &entry.action),
            &texts(|entry| &entry.object),
            &texts(|entry| &entry.result),
            &texts(|entry| &entry.address),
            &times,
            &hours,
        ],
    )
    .await?;
    Ok(())
}

fn user_of(entry: &AuditEntry) -> Option<Uuid> {
    entry.user.map(|user| user.0)
}

async fn read(db: &Connection, asked: &AuditQuery) -> Attempt<Vec<AuditEntry>> {
    let since = asked.since.map_or(i64::MIN, millis);
    let rows = db.query("SELECT at, user_id, credential, action, object, result, address, times, hour IS NOT NULL AS is_tally
         FROM audit WHERE at >= $1 AND ($2::uuid IS NULL OR user_id = $2)
         ORDER BY at DESC, number DESC LIMIT $3",
        &[&since, &asked.user.map(|user| user.0), &i64::from(asked.limit)],
    )
    .await?;
    rows.iter().map(entry_of).collect()
}

fn entry_of(row: &Row) -> Attempt<AuditEntry> {
    Ok(AuditEntry {
        at: rows::time(row, "at")?,
        user: rows::column::<Option<Uuid>>(row, "user_id")?.map(UserId),
        credential: rows::told(row, "credential")?,
        action: rows::told(row, "action")?,
        object: rows::told(row, "object")?,
        result: rows::told(row, "result")?,
        address: rows::told(row, "address")?,
        times: rows::number(row, "times")?,
        is_tally: rows::column(row, "is_tally")?,
    })
}

/// Deletes entries from before then; returns their number.
pub(super) async fn forget(db: &Connection, before: Timestamp) -> Attempt<u64> {
    db.execute(
        "DELETE FROM audit WHERE number IN
         (SELECT number FROM audit WHERE at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)",
        &[&millis(before), &(FORGOTTEN_AT_ONCE as i64)],
    )
    .await
}
