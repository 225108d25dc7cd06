//! Numbering, acknowledgement and retransmission of records.
//!
//! A record is kept until the peer has said that it was received, so that it can be sent again in the
//! next sealed session. How much data is kept is bounded by what the path can hold ([`PathWindow`]), and
//! that by what the process can spare ([`BudgetShare`]).

use std::collections::VecDeque;

use bytes::Bytes;

use super::TunnelFault;
use super::budget::BudgetShare;
use super::path_window::{LEAST_WINDOW, MOST_WINDOW, PathWindow};
use super::record::{MOST_DATA, Message};
use crate::time::Instant;

/// How much may be unacknowledged when a stream is opened: more than data may take, so that a stream can be
/// opened and others ended while data waits.
const OPEN_WINDOW: usize = MOST_WINDOW + (2 << 20);
/// How much may be unacknowledged when a record comes. Records beside data are sent whatever the window
/// says, mostly because the peer asked for them: without this bound a peer could make them pile up.
pub(super) const MOST_UNACKED: usize = 2 * MOST_WINDOW;
/// The least weight of a record: many small ones cost more than their bytes. A relay queues 256 messages
/// for a client, or 1 MiB.
pub(super) const LEAST_WEIGHT: usize = 4096;
/// How much is received before it is acknowledged, even if more is there to be received.
pub(super) const ACK_AFTER: usize = 256 << 10;
/// How much is received before it is acknowledged, once there is nothing more to be received. Small beside
/// the least window, so that no sender waits for the timer of an acknowledgement.
pub(super) const ACK_SOON: usize = LEAST_WINDOW / 2;

#[derive(Debug)]
pub(super) struct Positions {
    /// Records that the peer may not have; the first is number `acked`.
    unacked: VecDeque<Bytes>,
    weight: usize,
    acked: u64,
    /// The number of the record that goes into the session next.
    next: u64,
    /// How many went into any session. The peer may have received all of them, and no more.
    sent: u64,
    received: u64,
    /// The weight that was received and not acknowledged yet.
    unsaid: usize,
    /// Send an acknowledgement in any case.
    probe: bool,
    path: PathWindow,
    /// The weight of what went into this session and is not acknowledged.
    under_way: usize,
    /// The number of the first record that was made in this session.
    made_here: u64,
    /// How much of the window beyond the least was taken out of the budget.
    paid: usize,
}

impl Default for Positions {
    fn default() -> Self {
        Self {
            unacked: VecDeque::new(),
            weight: 0,
            acked: 0,
            next: 0,
            sent: 0,
            received: 0,
            unsaid: 0,
            probe: false,
            path: PathWindow::new(),
            under_way: 0,
            made_here: 0,
            paid: 0,
        }
    }
}

impl Positions {
    /// The number of the next record.
    pub(super) fn number(&self) -> u64 {
        self.acked + self.unacked.len() as u64
    }

    /// How many bytes of data may be added as one record: none while the window is full. On a slow path
    /// records are short, so that no stream waits long for the record of another.
    pub(super) fn room(&mut self) -> usize {
        if !self.has_room() {
            self.path.was_full();
            return 0;
        }
        (self.path.size() / 4).min(MOST_DATA)
    }

    pub(super) fn is_full(&self) -> bool {
        !self.has_room()
    }

    fn has_room(&self) -> bool {
        self.weight < self.path.size()
    }

    /// Whether a stream may be opened.
    pub(super) fn has_room_to_open(&self) -> bool {
        self.weight < OPEN_WINDOW
    }

    /// The peer acknowledges nothing, and makes this end send more and more. A peer that acknowledges
    /// as it should never comes near.
    pub(super) fn is_overfull(&self) -> bool {
        self.weight >= MOST_UNACKED
    }

    pub(super) fn add(&mut self, message: Bytes) {
        self.weight += weight(&message);
        self.unacked.push_back(message);
    }

    /// The next message for the session.
    pub(super) fn take(&mut self, now: Instant) -> Option<Bytes> {
        if self.probe || self.unsaid >= ACK_AFTER {
            (self.probe, self.unsaid) = (false, 0);
            return Some(Message::ack(self.received, self.next));
        }
        let at = usize::try_from(self.next - self.acked).ok()?;
        let message = self.unacked.get(at)?.clone();
        if !self.may_send_next() {
            self.path.was_full();
            return None;
        }
        self.path.sent(self.next, now);
        self.under_way += weight(&message);
        self.next += 1;
        self.sent = self.sent.max(self.next);
        Some(message)
    }

    pub(super) fn has_more(&self) -> bool {
        let has_next = self.next < self.number() && self.may_send_next();
        self.probe || self.unsaid >= ACK_AFTER || has_next
    }

    /// What is sent again after a loss may be far more than the new session can take at once. What was
    /// made in this session is within the window, or has to be sent whatever it says.
    fn may_send_next(&self) -> bool {
        self.next >= self.made_here || self.under_way < self.path.size()
    }

    pub(super) fn owes_ack(&self) -> bool {
        self.unsaid > 0
    }

    pub(super) fn say_soon(&mut self) {
        self.probe = true;
    }

    /// There is nothing more to be received now.
    pub(super) fn drained(&mut self) {
        self.probe |= self.unsaid >= ACK_SOON;
    }

    /// How many records the peer has, as far as it has said.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// A numbered record came. Whether it is new; otherwise it came before.
    pub(super) fn take_in(&mut self, number: u64, length: usize) -> Result<bool, TunnelFault> {
        if number > self.received {
            return Err(TunnelFault::Gap);
        }
        let is_new = number == self.received;
        if is_new {
            self.received += 1;
            self.unsaid += length.max(LEAST_WEIGHT);
        }
        Ok(is_new)
    }

    /// An acknowledgement came. Whether it made room.
    pub(super) fn acknowledged(
        &mut self,
        received: u64,
        sent: u64,
        budget: &mut BudgetShare,
        now: Instant,
    ) -> Result<bool, TunnelFault> {
        if received > self.sent {
            return Err(TunnelFault::Positions);
        }
        if sent > self.received {
            // In order, all that was sent before it would be here.
            return Err(TunnelFault::Gap);
        }
        let had_room = self.has_room();
        let weight = self.forget(received);
        self.path.acknowledged(self.acked, weight, budget.left(), now);
        self.settle(budget);
        // What an earlier session brought is not sent again.
        self.next = self.next.max(self.acked);
        Ok(!had_room && self.has_room())
    }

    /// A new session begins, and the peer has received so many: the rest is sent again. Whether that
    /// made room.
    pub(super) fn resume(
        &mut self,
        received: u64,
        budget: &mut BudgetShare,
    ) -> Result<bool, TunnelFault> {
        if received < self.acked || received > self.sent {
            return Err(TunnelFault::Positions);
        }
        let had_room = self.has_room();
        self.forget(received);
        // Another session may go another way.
        self.path = PathWindow::new();
        (self.under_way, self.made_here) = (0, self.number());
        self.settle(budget);
        self.next = received;
        // The peer was told how many were received.
        (self.unsaid, self.probe) = (0, false);
        Ok(!had_room && self.has_room())
    }

    /// The weight of what the peer has received and had not before.
    fn forget(&mut self, received: u64) -> usize {
        let before = self.weight;
        while self.acked < received
            && let Some(message) = self.unacked.pop_front()
        {
            let weight = weight(&message);
            if self.acked < self.next {
                self.under_way = self.under_way.saturating_sub(weight);
            }
            self.acked += 1;
            self.weight -= weight;
        }
        before - self.weight
    }

    /// Pays for a window that has grown, or gets back what is not needed any more. What is kept stays paid
    /// for when the window has shrunk.
    fn settle(&mut self, budget: &mut BudgetShare) {
        let kept = self.weight.saturating_sub(LEAST_WINDOW).min(self.paid);
        let needed = (self.path.size() - LEAST_WINDOW).max(kept);
        if needed > self.paid && !budget.take(needed - self.paid) {
            self.path.shrink_to(LEAST_WINDOW + self.paid);
            return;
        }
        budget.give(self.paid.saturating_sub(needed));
        self.paid = needed;
    }
}

fn weight(message: &Bytes) -> usize {
    message.len().max(LEAST_WEIGHT)
}
