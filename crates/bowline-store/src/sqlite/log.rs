//! A session's log, open for writing: entries go to its end, and its row says where that is.
//!
//! The one place that gives out positions (G1): contiguous, from the session's own row, inside the
//! transaction that writes them.

use bowline_sbp::id::{Seq, SnapshotId, TurnId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{Key, kind_number, millis, place};
use crate::{EntryKind, Error, Finish, Imported, NewEntry, Result, Snapshot, SnapshotKind};

/// Open in the middle of a transaction, between reading the session's row and writing it.
#[derive(Debug)]
pub(super) struct Log {
    key: Key,
    head: Head,
}

/// How far a log goes. Turns are made of these, so it is no more of the session's row than they
/// need.
#[derive(Debug)]
struct Head {
    step_count: u64,
    last_seq: Seq,
    tethered: u64,
    cost_usd: f64,
    /// One that was taken since the log was opened.
    snapshot: Option<Snapshot>,
}

impl Head {
    /// One entry further.
    fn pass(&mut self, entry: &NewEntry) {
        self.last_seq += 1;
        self.cost_usd += entry.cost_usd;
        self.tethered += u64::from(entry.tethered);
    }

    /// The same with an entry that is new here.
    fn add(&mut self, entry: &NewEntry) {
        self.step_count += u64::from(entry.kind == EntryKind::Turn);
        self.pass(entry);
    }

    fn take_snapshot(&mut self, (kind, id): (SnapshotKind, SnapshotId), at: Timestamp) {
        self.snapshot = Some(Snapshot { id, kind, seq: self.last_seq, at });
    }

    /// Takes the snapshot that is due at a turn's end.
    fn take_checkpoint(&mut self, finish: &Finish) {
        if self.step_count.is_multiple_of(u64::from(finish.checkpoint_every.max(1))) {
            self.take_snapshot((SnapshotKind::Checkpoint, finish.checkpoint), finish.at);
        }
    }
}

impl Log {
    pub(super) fn open(conn: &Connection, key: Key) -> Result<Self> {
        let sql = "SELECT step_count, last_seq, tether_last, cost_usd FROM sessions WHERE key = ?1";
        let head = conn.prepare_cached(sql)?.query_row([key], |row| {
            Ok(Head {
                step_count: row.get::<_, i64>(0)? as u64,
                last_seq: row.get::<_, i64>(1)? as Seq,
                tethered: row.get::<_, i64>(2)? as u64,
                cost_usd: row.get(3)?,
                snapshot: None,
            })
        });
        Ok(Self { key, head: head.optional()?.ok_or(Error::NoSession)? })
    }

    /// Adds a turn's last entries, and closes.
    pub(super) fn finish(mut self, conn: &Connection, finish: &Finish) -> Result<Seq> {
        self.append(conn, finish.turn_id, &finish.entries, finish.at)?;
        self.head.take_checkpoint(finish);
        let (seq, _) = self.close(conn, finish.at)?;
        Ok(seq)
    }

    /// Adds entries that were all written at the same time.
    pub(super) fn append(
        &mut self,
        conn: &Connection,
        turn: TurnId,
        entries: &[NewEntry],
        at: Timestamp,
    ) -> Result<()> {
        for entry in entries {
            self.head.add(entry);
            self.write(conn, turn, entry, at)?;
        }
        Ok(())
    }

    /// Adds entries from elsewhere, so that the last one stands at `step_count`: steps are counted
    /// back from there, since a log need not hold the turns of all its session's steps.
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
            self.head.pass(&imported.entry);
            self.head.step_count = step_count.saturating_sub(to_come);
            self.write(conn, imported.turn_id, &imported.entry, imported.at)?;
        }
        self.head.step_count = step_count;
        Ok(())
    }

    /// Writes the entry that the log goes up to.
    fn write(
        &self,
        conn: &Connection,
        turn: TurnId,
        entry: &NewEntry,
        at: Timestamp,
    ) -> Result<()> {
        let Head { last_seq, step_count, tethered, .. } = self.head;
        let tether_no = entry.tethered.then_some(tethered as i64);
        conn.prepare_cached(
            "INSERT INTO entries (place, kind, turn_id, message, model, cost_usd, status, step,
             tether_no, created_at, agent_id, carried)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            place(self.key, last_seq),
            kind_number(entry.kind),
            turn.as_bytes(),
            entry.message.as_json(),
            entry.model,
            entry.cost_usd,
            entry.status.as_str(),
            step_count as i64,
            tether_no,
            millis(at),
            entry.agent_id.as_ref().map(|agent| agent.as_str()),
            entry.carried,
        ])?;
        Ok(())
    }

    pub(super) fn take_snapshot(&mut self, snapshot: (SnapshotKind, SnapshotId), at: Timestamp) {
        self.head.take_snapshot(snapshot, at);
    }

    /// Writes where the log now ends; gives that, and the step.
    pub(super) fn close(self, conn: &Connection, at: Timestamp) -> Result<(Seq, u64)> {
        let Head { step_count, last_seq, tethered, cost_usd, snapshot } = self.head;
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
