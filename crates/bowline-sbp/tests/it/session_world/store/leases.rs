//! The replicas' rows, and the clock of the database.

use std::time::Duration;

use bowline_sbp::session::ReplicaId;
use bowline_sbp::session::liveness::{ReplicaLease, Timing};
use jiff::Timestamp;

use super::Store;

/// A replica's row.
#[derive(Debug)]
pub(super) struct ReplicaRow {
    /// By the clock of the database.
    expires_at: Duration,
    pub(super) dead: bool,
    /// Its lease ended by a pause of the database or a step of its clock: since when the database works
    /// again. Until it renews.
    spared: Option<Duration>,
    /// Its lease had ended before somebody set the clock.
    lapsed: bool,
    /// The clock of the database was set since it renewed.
    stepped: bool,
    /// Its lease was running when the database paused, and the database is paused still.
    held: bool,
}

impl Store {
    /// As `INSERT … ON CONFLICT DO NOTHING`.
    pub(in super::super) fn register(&mut self, replica: ReplicaId) {
        let expires_at = self.clock + Timing::default().lease;
        let row = ReplicaRow {
            expires_at,
            dead: false,
            spared: None,
            lapsed: false,
            stepped: false,
            held: false,
        };
        self.replicas.entry(replica).or_insert(row);
    }

    /// False: it is dead.
    pub(in super::super) fn renew(&mut self, replica: ReplicaId) -> bool {
        let expires_at = self.clock + Timing::default().lease;
        match self.replicas.get_mut(&replica) {
            Some(row) if !row.dead => {
                row.expires_at = expires_at;
                (row.spared, row.lapsed, row.stepped) = (None, false, false);
                true
            }
            _ => false,
        }
    }

    pub(in super::super) fn look_at_replicas(&self) -> Vec<ReplicaLease> {
        let alive = self.replicas.iter().filter(|(_, row)| !row.dead);
        let lease = |(id, row): (&ReplicaId, &ReplicaRow)| ReplicaLease {
            id: *id,
            expires_at: Some(Timestamp::UNIX_EPOCH + row.expires_at),
            has_expired: row.expires_at < self.clock,
        };
        alive.map(lease).collect()
    }

    /// Whether it is declared dead by this.
    pub(in super::super) fn declare_dead(&mut self, replica: ReplicaId, seen: Timestamp) -> bool {
        let Some(row) = self.replicas.get_mut(&replica) else { return false };
        let is_so = Timestamp::UNIX_EPOCH + row.expires_at == seen && row.expires_at < self.clock;
        if row.dead || !is_so {
            return false;
        }
        row.dead = true;
        let apart = Timing::default().apart;
        if row.spared.is_some_and(|since| self.elapsed < since + apart) {
            self.breaks("a paused database, or a step of its clock, killed a replica".into());
        }
        true
    }

    pub(in super::super) fn retire(&mut self, replica: ReplicaId) {
        if let Some(row) = self.replicas.get_mut(&replica) {
            row.dead = true;
        }
    }

    pub(in super::super) fn is_dead(&self, replica: ReplicaId) -> bool {
        self.replicas.get(&replica).is_none_or(|row| row.dead)
    }

    /// Replicas that are not dead.
    pub(in super::super) fn alive(&self) -> impl Iterator<Item = ReplicaId> {
        self.replicas.iter().filter(|(_, row)| !row.dead).map(|(id, _)| *id)
    }

    /// Whether nobody may have declared that replica dead yet. What a step of the clock did to its lease
    /// does not count: the replica cannot know of it.
    pub(in super::super) fn lease_holds(&self, replica: ReplicaId) -> bool {
        let holds = |row: &ReplicaRow| row.stepped || row.expires_at >= self.clock;
        self.replicas.get(&replica).is_some_and(holds)
    }

    pub(in super::super) fn time_passes(&mut self, by: Duration) {
        self.elapsed += by;
        self.clock += by;
    }

    /// Somebody sets the clock of the database.
    pub(in super::super) fn step_clock(&mut self, to: Duration) {
        for row in self.replicas.values_mut() {
            row.stepped = true;
            row.lapsed |= row.expires_at < self.clock;
            if !row.lapsed && row.expires_at < to {
                row.spared.get_or_insert(self.elapsed);
            }
        }
        self.clock = to;
    }

    pub(in super::super) fn clock(&self) -> Duration {
        self.clock
    }

    /// The database answers nobody any more.
    pub(in super::super) fn pause(&mut self) {
        self.paused = true;
        let clock = self.clock;
        let runs = |row: &&mut ReplicaRow| !row.lapsed && row.expires_at >= clock;
        for row in self.replicas.values_mut().filter(runs) {
            row.held = true;
        }
    }

    pub(in super::super) fn resume(&mut self) {
        self.paused = false;
        for row in self.replicas.values_mut().filter(|row| row.held) {
            row.held = false;
            row.spared.get_or_insert(self.elapsed);
        }
    }
}
