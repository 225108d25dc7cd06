//! The audit log: who did what to whom, and when.
//!
//! An event is written in the transaction of the change itself, so that neither is stored without
//! the other. What users do all day is counted, in one row per day and subject: renewals of presence
//! tokens, session tokens, renames, moves between relays, changes of devices, and refusals, which arrive as fast as callers send requests.
//!
//! Invariants
//! - Rows are only added; of a row that counts, the count and the time of the last one grow. Triggers
//!   of the file itself refuse anything else.
//! - A row is deleted for its age and for nothing else: no traffic pushes out what happened before it.

use rusqlite::{OptionalExtension as _, Transaction, params};

use super::{Registry, Result};

const DAY: u64 = 24 * 3600;
/// How long rows are kept, in seconds. A trigger has the same number.
const KEPT: u64 = 400 * DAY;
/// The actor of an event from the command line.
pub(super) const OPERATOR: &str = "operator";

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditEvent {
    UserAdded,
    UserRevoked,
    ApiKeyAdded,
    ApiKeysRevoked,
    DaemonRegistered,
    DaemonRenamed,
    DaemonRevoked,
    DaemonMoved,
    DevicesChanged,
    PresenceRenewed,
    SessionIssued,
    KeyRotated,
    KeysReplaced,
    RelayAdded,
    RelayDraining,
    RelayRemoved,
    Refused,
}

impl AuditEvent {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UserAdded => "user_added",
            Self::UserRevoked => "user_revoked",
            Self::ApiKeyAdded => "api_key_added",
            Self::ApiKeysRevoked => "api_keys_revoked",
            Self::DaemonRegistered => "daemon_registered",
            Self::DaemonRenamed => "daemon_renamed",
            Self::DaemonRevoked => "daemon_revoked",
            Self::DaemonMoved => "daemon_moved",
            Self::DevicesChanged => "devices_changed",
            Self::PresenceRenewed => "presence_renewed",
            Self::SessionIssued => "session_issued",
            Self::KeyRotated => "key_rotated",
            Self::KeysReplaced => "keys_replaced",
            Self::RelayAdded => "relay_added",
            Self::RelayDraining => "relay_draining",
            Self::RelayRemoved => "relay_removed",
            Self::Refused => "refused",
        }
    }
}

/// One row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub at: u64,
    /// A user's name, or `operator` for the command line, or `anyone`.
    pub actor: String,
    pub event: String,
    /// A user's name, a daemon's id, a relay's name, a signing key's id, or the code of a refusal.
    pub subject: String,
    /// How often it happened, from `at` to `last_at`.
    pub count: u64,
    pub last_at: u64,
}

pub(super) fn note(
    tx: &Transaction<'_>,
    now: u64,
    actor: &str,
    event: AuditEvent,
    subject: &str,
) -> Result<()> {
    insert(tx, now, actor, event, subject, 1)
}

/// Adds to the subject's row of the last 24 hours, or inserts one.
pub(super) fn count(
    tx: &Transaction<'_>,
    now: u64,
    actor: &str,
    event: AuditEvent,
    subject: &str,
    times: u64,
) -> Result<()> {
    let row: Option<i64> = tx
        .prepare_cached(
            "SELECT number FROM audit
             WHERE event = ?1
                   AND event IN ('presence_renewed', 'refused', 'session_issued', 'daemon_renamed',
                                 'devices_changed', 'daemon_moved')
                   AND subject = ?2 AND actor = ?4 AND at > ?3
             ORDER BY number DESC LIMIT 1",
        )?
        .query_row(params![event.as_str(), subject, now.saturating_sub(DAY), actor], |row| {
            row.get(0)
        })
        .optional()?;
    let Some(row) = row else { return insert(tx, now, actor, event, subject, times) };
    // The clock may have been set back.
    tx.prepare_cached(
        "UPDATE audit SET count = count + ?2, last_at = max(last_at, ?3) WHERE number = ?1",
    )?
    .execute(params![row, times, now])?;
    Ok(())
}

fn insert(
    tx: &Transaction<'_>,
    now: u64,
    actor: &str,
    event: AuditEvent,
    subject: &str,
    times: u64,
) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO audit (at, actor, event, subject, count, last_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?1)",
    )?
    .execute(params![now, actor, event.as_str(), subject, times])?;
    tx.prepare_cached("DELETE FROM audit WHERE at < ?1")?.execute([now.saturating_sub(KEPT)])?;
    Ok(())
}

impl Registry {
    /// Records how many requests were refused, by code.
    pub fn note_refusals(&mut self, refusals: &[(&str, u64)], now: u64) -> Result<()> {
        self.change(|tx| {
            refusals.iter().try_for_each(|(code, times)| {
                count(tx, now, "anyone", AuditEvent::Refused, code, *times)
            })
        })
    }

    /// The newest rows, newest first.
    pub fn audit(&mut self, limit: u32) -> Result<Vec<Record>> {
        self.look(|tx| {
            let mut rows = tx.prepare_cached(
                "SELECT at, actor, event, subject, count, last_at FROM audit
                 ORDER BY number DESC LIMIT ?1",
            )?;
            let rows = rows.query_map([limit], |row| {
                Ok(Record {
                    at: row.get(0)?,
                    actor: row.get(1)?,
                    event: row.get(2)?,
                    subject: row.get(3)?,
                    count: row.get(4)?,
                    last_at: row.get(5)?,
                })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }
}
