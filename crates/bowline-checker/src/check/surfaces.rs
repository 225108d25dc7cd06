//! Compares the turns that surfaces received with the log.
//!
//! Which confirmations count: those of an older attachment are ignored once a newer one is
//! attached, and a client cannot see when that happens. So a confirmation counts only from an
//! attachment that is certainly the newest: no other attach was pending when it began, and none
//! began since.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Case;
use crate::anomaly::{Alteration, Anomaly, Loss, Order, Repeat, Unasked};
use crate::history::{Attachment, Entry, Event, Received};

pub(super) fn check(case: &Case<'_>) -> Vec<Anomaly> {
    let mut surfaces = Surfaces {
        case,
        by_seq: case.log.entries.iter().map(|entry| (entry.seq, entry)).collect(),
        got: HashSet::new(),
        looked_until: 0,
        confirmed: 0,
        unsettled: HashSet::new(),
        seen: HashMap::new(),
        found: Vec::new(),
    };
    let ours = case.attachments();
    for event in &case.history.events {
        match event {
            Event::Attaching { attachment, .. } if ours.contains(attachment) => {
                surfaces.attaching(*attachment);
            }
            Event::Attached { attachment } => {
                surfaces.unsettled.remove(attachment);
            }
            Event::Received { attachment, turn } if ours.contains(attachment) => {
                surfaces.received(*attachment, turn);
            }
            Event::Confirmed { attachment, seq } if ours.contains(attachment) => {
                surfaces.confirmed(*attachment, *seq);
            }
            Event::Restarted => surfaces.unsettled.clear(),
            _ => {}
        }
    }
    surfaces.drained();
    surfaces.found
}

/// One attachment.
struct View {
    /// Certainly the newest attachment.
    newest: bool,
    /// The confirmed position when it began.
    floor: u64,
    last: u64,
}

struct Surfaces<'a> {
    case: &'a Case<'a>,
    by_seq: BTreeMap<u64, &'a Entry>,
    /// Positions that any surface received.
    got: HashSet<u64>,
    /// Turns before this position were delivered, or reported as lost.
    looked_until: u64,
    confirmed: u64,
    /// Attaches that were sent and may still take effect.
    unsettled: HashSet<Attachment>,
    seen: HashMap<Attachment, View>,
    found: Vec<Anomaly>,
}

impl Surfaces<'_> {
    fn attaching(&mut self, attachment: Attachment) {
        for view in self.seen.values_mut() {
            view.newest = false;
        }
        let newest = self.unsettled.is_empty();
        self.unsettled.insert(attachment);
        self.seen.insert(attachment, View { newest, floor: self.confirmed, last: 0 });
    }

    fn confirmed(&mut self, attachment: Attachment, seq: u64) {
        if self.seen.get(&attachment).is_some_and(|view| view.newest) {
            self.confirmed = self.confirmed.max(seq);
        }
    }

    fn received(&mut self, attachment: Attachment, turn: &Received) {
        let (session, turn_id) = (self.case.session.to_owned(), turn.turn_id.clone());
        let Some(view) = self.seen.get_mut(&attachment) else { return };
        let (floor, after, seq) = (view.floor, view.last, turn.seq);
        view.last = view.last.max(seq);
        if seq <= after {
            let order = Order::SurfaceGoesBack { attachment, after, seq };
            let (session, turn_id) = (session.clone(), turn_id.clone());
            self.found.push(Anomaly::Reordered { session, turn_id, order });
        }
        if seq <= floor {
            let repeat = Repeat::AfterConfirmed { attachment, seq, confirmed: floor };
            let (session, turn_id) = (session.clone(), turn_id.clone());
            self.found.push(Anomaly::Duplicate { session, turn_id, repeat });
        }
        match self.by_seq.get(&seq) {
            None => {
                let unasked = Unasked::NotInLog { attachment, seq };
                self.found.push(Anomaly::Phantom { session, turn_id, unasked });
            }
            Some(entry) if entry.turn_id != turn_id => {
                let stored = entry.turn_id.clone();
                let alteration = Alteration::Renamed { attachment, seq, stored };
                self.found.push(Anomaly::Altered { session, turn_id, alteration });
            }
            Some(entry) if entry.content != turn.content => {
                let (got, stored) = (turn.content.clone(), entry.content.clone());
                let alteration = Alteration::Delivered { attachment, got, stored };
                self.found.push(Anomaly::Altered { session, turn_id, alteration });
            }
            Some(_) => {}
        }
        self.got.insert(seq);
        self.lost(seq, |seq, at| Loss::Skipped { attachment, seq, at });
    }

    /// If no turn is pending, surfaces must have received everything.
    fn drained(&mut self) {
        if self.case.log.drained {
            self.lost(u64::MAX, |seq, _| Loss::NeverDelivered { seq });
        }
    }

    /// Reports the turns before `at` that no surface received, each once.
    fn lost(&mut self, at: u64, loss: impl Fn(u64, u64) -> Loss) {
        if at <= self.looked_until {
            return;
        }
        for (seq, entry) in self.by_seq.range(self.looked_until..at) {
            if entry.tethered && entry.is_reply() && !self.got.contains(seq) {
                self.found.push(Anomaly::Lost {
                    session: self.case.session.to_owned(),
                    turn_id: entry.turn_id.clone(),
                    loss: loss(*seq, at),
                });
            }
        }
        self.looked_until = at;
    }
}
