//! The end of a log that is appended to without an owner: by an import, a fork or a handoff.
//!
//! Positions are assigned here (G1): contiguous, from the counters of the session's row, in the
//! transaction that writes the entries. Afterwards its owner assigns them.

use std::collections::HashMap;

use bowline_sbp::federation::MovedTether;
use bowline_sbp::id::{Seq, SnapshotId, TurnId};
use bowline_sbp::session::Placed;
use jiff::Timestamp;

use crate::size::text_bytes;
use crate::{EntryKind, Imported, NewEntry, Snapshot, SnapshotKind};

/// The end of a log, and the session's counters. Lives within one transaction.
#[derive(Debug, Default)]
pub(crate) struct LogEnd {
    pub(crate) step_count: u64,
    pub(crate) last_seq: Seq,
    pub(crate) tethered: u64,
    pub(crate) cost_usd: f64,
    /// Bytes of messages that were appended since the log was opened, without their blobs.
    pub(crate) added: u64,
    /// A snapshot taken since the log was opened.
    pub(crate) snapshot: Option<Snapshot>,
}

impl LogEnd {
    /// Places an entry at the end.
    pub(crate) fn append(&mut self, turn: TurnId, entry: NewEntry, at: Timestamp) -> Placed {
        self.step_count += u64::from(entry.kind == EntryKind::Turn);
        self.place(turn, entry, at)
    }

    /// Places imported entries, so that the last one gets `step_count`: steps are counted back from
    /// there, since a log need not hold the turns of all steps. What surfaces have not got yet is queued for
    /// them, under the ids that they know it by.
    pub(crate) fn restore<E>(
        &mut self,
        step_count: u64,
        entries: Vec<Imported>,
        tether: Option<&MovedTether>,
        mut write: impl FnMut(Placed) -> Result<(), E>,
    ) -> Result<(), E> {
        let is_turn = |imported: &Imported| imported.entry.kind == EntryKind::Turn;
        let mut to_come = entries.iter().filter(|imported| is_turn(imported)).count() as u64;
        let pending: HashMap<_, _> =
            tether.into_iter().flat_map(|tether| tether.turns.iter().copied()).collect();
        for (mut imported, seq) in entries.into_iter().zip(self.last_seq + 1..) {
            to_come -= u64::from(is_turn(&imported));
            // Only what the origin could have sent: a caller's message is never delivered as a turn.
            let id = pending.get(&seq).filter(|_| imported.entry.kind != EntryKind::Message);
            imported.entry.tethered = id.is_some();
            imported.turn_id = id.copied().unwrap_or(imported.turn_id);
            self.step_count = step_count.saturating_sub(to_come);
            write(self.place(imported.turn_id, imported.entry, imported.at))?;
        }
        self.step_count = step_count;
        Ok(())
    }

    fn place(&mut self, turn_id: TurnId, entry: NewEntry, at: Timestamp) -> Placed {
        self.last_seq += 1;
        self.cost_usd += entry.cost_usd;
        self.added = self.added.saturating_add(text_bytes(&entry));
        self.tethered += u64::from(entry.tethered);
        let tether_no = entry.tethered.then_some(self.tethered);
        Placed { seq: self.last_seq, turn_id, step: self.step_count, tether_no, at, entry }
    }

    pub(crate) fn take_snapshot(&mut self, (kind, id): (SnapshotKind, SnapshotId), at: Timestamp) {
        self.snapshot = Some(Snapshot { id, kind, seq: self.last_seq, at });
    }
}
