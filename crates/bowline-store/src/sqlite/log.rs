//! A session's log, open for writing: entries go to its end, and its row says where that is.
//!
//! The one place that gives out positions (G1): contiguous, from the session's own row, inside the
//! transaction that writes them.

use bowline_sbp::id::{Seq, SnapshotId, TurnId};
use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use super::conn::Conn;
use super::rows::{Key, kind_number, millis, place};
use crate::{EntryKind, Error, Imported, NewEntry, Result, Snapshot, SnapshotKind};

/// Open in the middle of a transaction, between reading the session's row and writing it. Turns are
/// made of these, so it takes no more of the row than it needs.
#[derive(Debug)]
pub(super) struct Log {
    key: Key,
    pub(super) step_count: u64,
    last_seq: Seq,
    tethered: u64,
    cost_usd: f64,
    snapshot: Option<Snapshot>,
}

impl Log {
    pub(super) fn open(conn: &Conn<'_>, key: Key) -> Result<Self> {
        let sql = "SELECT step_count, last_seq, tether_last, cost_usd FROM sessions WHERE key = ?1";
        let log = conn.statement(sql)?.query_row([key], |row| {
            Ok(Self {
                key,
                step_count: row.get::<_, i64>(0)? as u64,
                last_seq: row.get::<_, i64>(1)? as Seq,
                tethered: row.get::<_, i64>(2)? as u64,
                cost_usd: row.get(3)?,
                snapshot: None,
            })
        });
        log.optional()?.ok_or(Error::NoSession)
    }

    /// Adds entries that were all written at the same time.
    pub(super) fn append(
        &mut self,
        conn: &Conn<'_>,
        turn: TurnId,
        entries: &[NewEntry],
        at: Timestamp,
    ) -> Result<()> {
        for entry in entries {
            if entry.kind == EntryKind::Turn {
                self.step_count += 1;
            }
            self.write(conn, turn, entry, at)?;
        }
        Ok(())
    }

    /// Adds entries from elsewhere, so that the last one stands at `step_count`: steps are counted
    /// back from there, since a log need not hold the turns of all its session's steps.
    pub(super) fn restore(
        &mut self,
        conn: &Conn<'_>,
        step_count: u64,
        entries: Vec<Imported>,
    ) -> Result<()> {
        let is_turn = |imported: &Imported| imported.entry.kind == EntryKind::Turn;
        let mut to_come = entries.iter().filter(|imported| is_turn(imported)).count() as u64;
        for mut imported in entries {
            to_come -= u64::from(is_turn(&imported));
            self.step_count = step_count.saturating_sub(to_come);
            imported.entry.tethered = false;
            self.write(conn, imported.turn_id, &imported.entry, imported.at)?;
        }
        self.step_count = step_count;
        Ok(())
    }

    fn write(
        &mut self,
        conn: &Conn<'_>,
        turn: TurnId,
        entry: &NewEntry,
        at: Timestamp,
    ) -> Result<()> {
        self.last_seq += 1;
        self.cost_usd += entry.cost_usd;
        self.tethered += u64::from(entry.tethered);
        let tether_no = entry.tethered.then_some(self.tethered as i64);
        conn.statement(
            "INSERT INTO entries (place, kind, turn_id, message, model, cost_usd, status, step,
             tether_no, created_at, agent_id, carried)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            place(self.key, self.last_seq),
            kind_number(entry.kind),
            turn.as_bytes(),
            entry.message.as_json(),
            entry.model,
            entry.cost_usd,
            entry.status.as_str(),
            self.step_count as i64,
            tether_no,
            millis(at),
            entry.agent_id.as_ref().map(|agent| agent.as_str()),
            entry.carried,
        ])?;
        Ok(())
    }

    pub(super) fn take_snapshot(&mut self, (kind, id): (SnapshotKind, SnapshotId), at: Timestamp) {
        self.snapshot = Some(Snapshot { id, kind, seq: self.last_seq, at });
    }

    /// Writes where the log now ends; gives that, and the step.
    pub(super) fn close(self, conn: &Conn<'_>, at: Timestamp) -> Result<(Seq, u64)> {
        let (key, step, at) = (self.key, self.step_count as i64, millis(at));
        let (seq, tethered) = (self.last_seq as i64, self.tethered as i64);
        match &self.snapshot {
            None => conn
                .statement(
                    "UPDATE sessions SET step_count = ?2, updated_at = ?3, last_seq = ?4,
                     tether_last = ?5, cost_usd = ?6 WHERE key = ?1",
                )?
                .execute(params![key, step, at, seq, tethered, self.cost_usd])?,
            Some(snapshot) => conn
                .statement(
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
                    self.cost_usd,
                    snapshot.id.as_bytes(),
                    snapshot.seq as i64,
                    millis(snapshot.at),
                    snapshot.kind.as_str(),
                ])?,
        };
        Ok((self.last_seq, self.step_count))
    }
}
