//! Appends to the log of a session that is created by an import, fork or handoff.
//!
//! The session has no owner yet, so positions are assigned here (G1): contiguous, from the
//! session's row, in the transaction that writes the entries. Afterwards its owner assigns them.

use bowline_sbp::id::{Seq, SnapshotId, TurnId};
use bowline_sbp::session::Placed;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::commit;
use super::rows::{Key, millis};
use crate::size::{text_bytes, whole};
use crate::{EntryKind, Error, Imported, NewEntry, Result, Snapshot, SnapshotKind};

/// Lives within one transaction, between reading the session's row and writing it.
#[derive(Debug)]
pub(super) struct LogAppender {
    key: Key,
    end: LogEnd,
}

/// The end of the log, and the session's counters.
#[derive(Debug)]
struct LogEnd {
    step_count: u64,
    last_seq: Seq,
    tethered: u64,
    cost_usd: f64,
    /// Bytes of messages that were appended since the log was opened, without their blobs.
    added: u64,
    /// A snapshot taken since the log was opened.
    snapshot: Option<Snapshot>,
}

impl LogEnd {
    /// Counts one entry.
    fn pass(&mut self, entry: &NewEntry) {
        self.last_seq += 1;
        self.cost_usd += entry.cost_usd;
        self.added = self.added.saturating_add(text_bytes(entry));
        self.tethered += u64::from(entry.tethered);
    }

    /// Counts one entry that was not imported.
    fn add(&mut self, entry: &NewEntry) {
        self.step_count += u64::from(entry.kind == EntryKind::Turn);
        self.pass(entry);
    }

    fn take_snapshot(&mut self, (kind, id): (SnapshotKind, SnapshotId), at: Timestamp) {
        self.snapshot = Some(Snapshot { id, kind, seq: self.last_seq, at });
    }
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
            self.end.add(&entry);
            self.write(conn, turn, entry, at)?;
        }
        Ok(())
    }

    /// Appends imported entries, so that the last one gets `step_count`: steps are counted back
    /// from there, since a log need not hold the turns of all steps.
    pub(super) fn restore(
        &mut self,
        conn: &Connection,
        step_count: u64,
        entries: Vec<Imported>,
    ) -> Result<()> {
        let is_turn = |imported: &Imported| imported.entry.kind == EntryKind::Turn;
        let mut to_come = entries.iter().filter(|imported| is_turn(imported)).count() as u64;
        for mut imported in entries {
            to_come -= u64::from(is_turn(&imported));
            imported.entry.tethered = false;
            self.end.pass(&imported.entry);
            self.end.step_count = step_count.saturating_sub(to_come);
            self.write(conn, imported.turn_id, imported.entry, imported.at)?;
        }
        self.end.step_count = step_count;
        Ok(())
    }

    /// Writes an entry at the current end of the log.
    fn write(
        &self,
        conn: &Connection,
        turn_id: TurnId,
        entry: NewEntry,
        at: Timestamp,
    ) -> Result<()> {
        let LogEnd { last_seq: seq, step_count: step, tethered, .. } = self.end;
        let tether_no = entry.tethered.then_some(tethered);
        commit::append(conn, self.key, &Placed { seq, turn_id, step, tether_no, at, entry })
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
