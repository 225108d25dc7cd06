//! Numbering, acknowledgement and retransmission of records.
//!
//! A record is kept until the peer has said that it was received, so that it can be sent again in the
//! next sealed session. What is kept is bounded by [`WINDOW`]: a relay buffers about 1 MiB for a slow
//! reader before it closes the connection (SBRP-RELAY-08), and both directions of a session share it.

use std::collections::VecDeque;

use bytes::Bytes;

use super::TunnelFault;
use super::record::Message;

/// How much may be sent and not acknowledged, by weight.
pub const WINDOW: usize = 512 << 10;
/// How much may be unacknowledged when a stream is opened.
const OPEN_WINDOW: usize = 4 * WINDOW;
/// How much may be unacknowledged when a record comes. Records beside data are sent whatever the window
/// says, mostly because the peer asked for them: without this bound a peer could make them pile up.
pub(super) const MOST_UNACKED: usize = 16 * WINDOW;
/// The least weight of a record: many small ones cost more than their bytes.
pub(super) const LEAST_WEIGHT: usize = 1024;
/// How much is received before it is acknowledged.
pub(super) const ACK_AFTER: usize = WINDOW / 4;

#[derive(Debug, Default)]
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
}

impl Positions {
    /// The number of the next record.
    pub(super) fn number(&self) -> u64 {
        self.acked + self.unacked.len() as u64
    }

    /// Whether data may be added.
    pub(super) fn has_room(&self) -> bool {
        self.weight < WINDOW
    }

    /// Whether a stream may be opened. More than data may take, so that a stream can be opened and
    /// others ended while data waits.
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
    pub(super) fn take(&mut self) -> Option<Bytes> {
        if self.probe || self.unsaid >= ACK_AFTER {
            (self.probe, self.unsaid) = (false, 0);
            return Some(Message::ack(self.received, self.next));
        }
        let at = usize::try_from(self.next - self.acked).ok()?;
        let message = self.unacked.get(at)?.clone();
        self.next += 1;
        self.sent = self.sent.max(self.next);
        Some(message)
    }

    pub(super) fn has_more(&self) -> bool {
        self.probe || self.unsaid >= ACK_AFTER || self.next < self.number()
    }

    pub(super) fn owes_ack(&self) -> bool {
        self.unsaid > 0
    }

    pub(super) fn say_soon(&mut self) {
        self.probe = true;
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
    pub(super) fn acknowledged(&mut self, received: u64, sent: u64) -> Result<bool, TunnelFault> {
        if received > self.sent {
            return Err(TunnelFault::Positions);
        }
        if sent > self.received {
            // In order, all that was sent before it would be here.
            return Err(TunnelFault::Gap);
        }
        let had_room = self.has_room();
        self.forget(received);
        // What an earlier session brought is not sent again.
        self.next = self.next.max(self.acked);
        Ok(!had_room && self.has_room())
    }

    /// A new session begins, and the peer has received so many: the rest is sent again. Whether that
    /// made room.
    pub(super) fn resume(&mut self, received: u64) -> Result<bool, TunnelFault> {
        if received < self.acked || received > self.sent {
            return Err(TunnelFault::Positions);
        }
        let had_room = self.has_room();
        self.forget(received);
        self.next = received;
        // The peer was told how many were received.
        (self.unsaid, self.probe) = (0, false);
        Ok(!had_room && self.has_room())
    }

    fn forget(&mut self, received: u64) {
        while self.acked < received
            && let Some(message) = self.unacked.pop_front()
        {
            self.acked += 1;
            self.weight -= weight(&message);
        }
    }
}

fn weight(message: &Bytes) -> usize {
    message.len().max(LEAST_WEIGHT)
}
