//! What must hold at the end of every schedule.

use std::collections::BTreeMap;

use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::TurnId;
use bowline_sbp::message::EntryKind;
use bowline_sbp::session::Command;

use super::World;
use super::clients::Kind;
use super::request::Request;

impl World {
    pub(super) fn judge(&mut self) {
        self.everything_ended();
        self.entries_once();
        self.order_of_each_client();
        self.cancels_spare_later_turns();
        self.not_stored_means_not_stored();
        self.nobody_is_left_attached();
    }

    fn everything_ended(&mut self) {
        if let Some(rows) = &self.store.rows
            && !rows.turns.is_empty()
        {
            let why = format!("turns were left: {:?}", rows.turns);
            self.breaks(why);
        }
        let open = self.requests.iter().position(|request| request.answered_at.is_none());
        if let Some(open) = open {
            let why = format!("request {open} was never answered: {:?}", self.requests[open]);
            self.breaks(why);
        }
        if let Some(at) = self.clients.iter().position(|client| client.waits_for.is_some()) {
            self.breaks(format!("client {at} waits for ever"));
        }
    }

    /// The log is contiguous, has each question once, and one end of each turn.
    fn entries_once(&mut self) {
        let mut asked: BTreeMap<TurnId, u32> = BTreeMap::new();
        let mut ends: BTreeMap<TurnId, u32> = BTreeMap::new();
        let mut why = None;
        for (entry, seq) in self.store.past.log.iter().zip(1..) {
            if entry.seq != seq {
                why = Some(format!("entry {} at {seq}", entry.seq));
            }
            match entry.entry.kind {
                EntryKind::Message => *asked.entry(entry.turn_id).or_default() += 1,
                EntryKind::Turn | EntryKind::Note => *ends.entry(entry.turn_id).or_default() += 1,
                EntryKind::Action => {}
            }
        }
        if let Some((turn, times)) = asked.iter().find(|(_, times)| **times > 1) {
            why = Some(format!("what was asked in {turn} is in the log {times} times"));
        }
        let past = &self.store.past;
        if let Some(turn) = past.ended.iter().find(|turn| ends.get(turn) != Some(&1)) {
            why = Some(format!("{turn} has {:?} ends in the log", ends.get(turn)));
        }
        if let Some(turn) = ends.keys().find(|turn| !past.ended.contains(turn)) {
            why = Some(format!("{turn} has an end in the log and did not end"));
        }
        why.into_iter().for_each(|why| self.breaks(why));
    }

    /// A surface's messages are accepted in the order in which it sent them (G17).
    fn order_of_each_client(&mut self) {
        let past = &self.store.past;
        let surfaces = self.clients.iter().filter(|c| matches!(c.kind, Kind::Surface { .. }));
        for client in surfaces {
            let places = client.turns.iter().filter(|turn| !past.forgotten.contains(turn));
            let places: Vec<_> = places.filter_map(|turn| past.accepted.get(turn)).collect();
            if !places.is_sorted() {
                let why = format!("{:?} were taken as {places:?}", client.turns);
                return self.breaks(why);
            }
        }
        // Turns that ran ended in the order in which they were accepted.
        let ran = |turn: &TurnId| past.started.iter().any(|(started, _)| started == turn);
        let ends = past.log.iter().filter(|entry| {
            matches!(entry.entry.kind, EntryKind::Turn | EntryKind::Note) && ran(&entry.turn_id)
        });
        let places: Vec<_> = ends.filter_map(|entry| past.accepted.get(&entry.turn_id)).collect();
        if !places.is_sorted() {
            let why = format!("turns ended in this order: {places:?}");
            self.breaks(why);
        }
    }

    /// A turn is cancelled only by a cancel that names it, or by one for whatever runs that was not
    /// answered before the turn was asked for.
    fn cancels_spare_later_turns(&mut self) {
        let sent = |turn: TurnId| {
            let of =
                |request: &&Request| request.submit().is_some_and(|submit| submit.turn == turn);
            self.requests.iter().find(of).map(|request| request.sent_at)
        };
        let past = &self.store.past;
        let cancelled = past.log.iter().filter(|e| e.entry.status == TurnStatus::Cancelled);
        let mut wrong = None;
        for entry in cancelled {
            let sent = sent(entry.turn_id);
            let reaches = |request: &Request| match &request.command {
                Command::Cancel { running: true, .. } => request.answered_at >= sent,
                Command::Cancel { turns, .. } => turns.contains(&entry.turn_id),
                _ => false,
            };
            if !self.requests.iter().any(reaches) {
                wrong = Some(entry.turn_id);
            }
        }
        if let Some(turn) = wrong {
            self.breaks(format!("{turn} was cancelled, and nobody meant it"));
        }
    }

    /// A request that was sent once and answered with "not stored" has left nothing in the store.
    fn not_stored_means_not_stored(&mut self) {
        let past = &self.store.past;
        let told = self.requests.iter().filter(|r| r.told_not_stored && r.sent == 1);
        let mut turns = told.filter_map(|request| request.submit()).map(|submit| submit.turn);
        if let Some(turn) = turns.find(|turn| past.accepted.contains_key(turn)) {
            self.breaks(format!("{turn} was stored, and its sender was told it was not"));
        }
    }

    /// Clients that have disconnected are not attached any more.
    fn nobody_is_left_attached(&mut self) {
        let leases = self.replicas.iter().filter_map(|replica| replica.running.as_ref());
        let mut leases = leases.filter_map(|running| running.actor.lease());
        if let Some(rows) = &self.store.rows
            && leases.any(|(owner, fence)| (Some(owner), fence) == (rows.owner, rows.fence))
            && !rows.attachments.is_empty()
        {
            let why = format!("nobody holds these sockets: {:?}", rows.attachments);
            self.breaks(why);
        }
    }
}
