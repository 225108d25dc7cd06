//! A session's log, open for writing: entries go to its end, and its row says where that is.
//!
//! The one place that gives out positions (G1): contiguous, from the session's own row, inside the
//! transaction that writes them.

use bowline_sbp::id::{SnapshotId, TurnId};
use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::rows::{self, Key, kind_number, millis, place};
use crate::{EntryKind, Imported, NewEntry, Result, Session, Snapshot, SnapshotKind};

/// Open in the middle of a transaction, between two looks at the session's row.
pub(super) struct Log {
    key: Key,
    pub(super) session: Session,
}

impl Log {
    pub(super) fn open(conn: &Connection, key: Key) -> Result<Self> {
        Ok(Self { key, session: rows::with_key(conn, key)? })
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
            if entry.kind == EntryKind::Turn {
                self.session.step_count += 1;
            }
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
            self.session.step_count = step_count.saturating_sub(to_come);
            imported.entry.tethered = false;
            self.write(conn, imported.turn_id, &imported.entry, imported.at)?;
        }
        self.session.step_count = step_count;
        Ok(())
    }

    fn write(
        &mut self,
        conn: &Connection,
        turn: TurnId,
        entry: &NewEntry,
        at: Timestamp,
    ) -> Result<()> {
        let session = &mut self.session;
        session.last_seq += 1;
        session.cost_usd += entry.cost_usd;
        let tether_no = entry.tethered.then(|| {
            session.tethered_turns += 1;
            session.pending_turns += 1;
            session.tethered_turns as i64
        });
        conn.prepare_cached(
            "INSERT INTO entries (place, kind, turn_id, message, model, cost_usd, status, step,
             tether_no, created_at, agent_id, carried)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            place(self.key, session.last_seq),
            kind_number(entry.kind),
            turn.as_bytes(),
            entry.message.as_json(),
            entry.model,
            entry.cost_usd,
            entry.status.as_str(),
            session.step_count as i64,
            tether_no,
            millis(at),
            entry.agent_id.as_ref().map(|agent| agent.as_str()),
            entry.carried,
        ])?;
        Ok(())
    }

    pub(super) fn take_snapshot(&mut self, (kind, id): (SnapshotKind, SnapshotId), at: Timestamp) {
        self.session.snapshot = Some(Snapshot { id, kind, seq: self.session.last_seq, at });
    }

    /// Writes where the log now ends.
    pub(super) fn close(mut self, conn: &Connection, at: Timestamp) -> Result<Session> {
        self.session.updated_at = at;
        let session = &self.session;
        let snapshot = session.snapshot.as_ref();
        conn.prepare_cached(
            "UPDATE sessions SET step_count = ?2, updated_at = ?3, last_seq = ?4, tether_last = ?5,
             cost_usd = ?6, snapshot_id = ?7, snapshot_seq = ?8, snapshot_at = ?9,
             snapshot_kind = ?10 WHERE key = ?1",
        )?
        .execute(params![
            self.key,
            session.step_count as i64,
            millis(at),
            session.last_seq as i64,
            session.tethered_turns as i64,
            session.cost_usd,
            snapshot.map(|snapshot| snapshot.id.as_bytes()),
            snapshot.map(|snapshot| snapshot.seq as i64),
            snapshot.map(|snapshot| millis(snapshot.at)),
            snapshot.map(|snapshot| snapshot.kind.as_str()),
        ])?;
        Ok(self.session)
    }
}
