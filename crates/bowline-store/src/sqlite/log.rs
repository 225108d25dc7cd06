//! Appends to the log of a session that is created by an import, fork or handoff.

use bowline_sbp::federation::MovedTether;
use bowline_sbp::id::{Seq, SnapshotId, TurnId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::commit;
use super::rows::{Key, millis};
use crate::log_end::LogEnd;
use crate::size::whole;
use crate::{Error, Imported, NewEntry, Result, SnapshotKind};

/// Lives within one transaction, between reading the session's row and writing it.
#[derive(Debug)]
pub(super) struct LogAppender {
    key: Key,
    end: LogEnd,
}

impl LogAppender {
    pub(super) fn open(conn: &Connection, key: Key) -> Result<Self> {
        let sql = "SELECT step_count, last_seq, tether_last, cost_usd FROM sessions WHERE key = ?1";
        let end = conn.prepare_cached(sql)?.query_row([key], |row| {
            Ok(LogEnd {
                step_count: row.get::<_, i64>(0)? as u64,
                last_seq: row.get::<_, i64>(1)? as Seq,
                tethered: row.get::<_, i64>(2)? as u64,
                cost_usd: row.get(3)?,
                added: 0,
                snapshot: None,
            })
        });
        Ok(Self { key, end: end.optional()?.ok_or(Error::NoSession)? })
    }

    /// Appends entries with the same timestamp.
    pub(super) fn append(
        &mut self,
        conn: &Connection,
        turn: TurnId,
        entries: Vec<NewEntry>,
        at: Timestamp,
    ) -> Result<()> {
        for entry in entries {
            commit::append(conn, self.key, &self.end.append(turn, entry, at))?;
        }
        Ok(())
    }

    /// Appends imported entries.
    pub(super) fn restore(
        &mut self,
        conn: &Connection,
        step_count: u64,
        entries: Vec<Imported>,
        tether: Option<&MovedTether>,
    ) -> Result<()> {
        let key = self.key;
        self.end.restore(step_count, entries, tether, |placed| commit::append(conn, key, &placed))
    }

    pub(super) fn take_snapshot(&mut self, snapshot: (SnapshotKind, SnapshotId), at: Timestamp) {
        self.end.take_snapshot(snapshot, at);
    }

    /// Writes the end of the log to the session's row; returns its position and step.
    pub(super) fn close(self, conn: &Connection, at: Timestamp) -> Result<(Seq, u64)> {
        let LogEnd { step_count, last_seq, tethered, cost_usd, added, snapshot } = self.end;
        let add = "UPDATE sessions SET stored_bytes = min(stored_bytes + ?2, 1 << 60)
                   WHERE key = ?1";
        conn.prepare_cached(add)?.execute(params![self.key, whole(added)])?;
        let (key, step, at) = (self.key, step_count as i64, millis(at));
        let (seq, tethered) = (last_seq as i64, tethered as i64);
        match &snapshot {
            None => conn
                .prepare_cached(
                    "UPDATE sessions SET step_count = ?2, updated_at = ?3, last_seq = ?4,
                     tether_last = ?5, cost_usd = ?6 WHERE key = ?1",
                )?
                .execute(params![key, step, at, seq, tethered, cost_usd])?,
            Some(snapshot) => conn
                .prepare_cached(
                    "UPDATE sessions SET step_count = ?2, updated_at = ?3, last_seq = ?4,
                     tether_last = ?5, cost_usd = ?6, snapshot_id = ?7, snapshot_seq = ?8,
                     snapshot_at = ?9, snapshot_kind = ?10 WHERE key = ?1",
                )?
                .execute(params![
                    key,
                    step,
                    at,
                    seq,
                    tethered,
                    cost_usd,
                    snapshot.id.as_bytes(),
                    snapshot.seq as i64,
                    millis(snapshot.at),
                    snapshot.kind.as_str(),
                ])?,
        };
        Ok((last_seq, step_count))
    }
}
