//! One stream of a tunnel, at one end: what was received and not read, and what may be sent.
//!
//! Flow control is by credit. Each end may send [`FIRST_CREDIT`] bytes on a new stream, and more as the
//! other end grants it. A reader that keeps up is granted larger windows, so that a distant stream is
//! not limited by its round trip; a reader that does not keeps the window it has.

use bytes::Bytes;

use super::TunnelFault;
use super::record::ResetReason;
use super::unread::Unread;

/// How many bytes may be sent on a new stream in each direction.
pub(super) const FIRST_CREDIT: usize = 64 << 10;
/// The largest window of a stream.
pub(super) const LARGEST_WINDOW: usize = 4 << 20;

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Never empty.
    Bytes(Bytes),
    /// Nothing is there yet.
    Blocked,
    /// The peer sent everything that it had to send.
    End,
    /// The other end, or the loss of the tunnel, ended it.
    Reset(ResetReason),
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// So many bytes were taken.
    Wrote(usize),
    /// Wait for credit or room.
    Blocked,
    /// This end said that it has nothing more to send.
    Ended,
    /// The stream is over.
    Reset(ResetReason),
}

/// What became of a stream's own direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndDelivery {
    /// The peer has received everything, and the end.
    Delivered,
    /// It is not ended, or the peer has not said that it has the end.
    Waiting,
    /// It was cut off before.
    Reset(ResetReason),
}

#[derive(Debug)]
pub(super) struct StreamState {
    unread: Unread,
    /// How many bytes the peer may have on its way or unread here.
    window: usize,
    /// How many more bytes the peer may send.
    granted: usize,
    /// Read since credit was granted last.
    read: usize,
    /// Read since the window grew last.
    read_at_this_size: usize,
    /// How many bytes may be sent.
    pub(super) credit: usize,
    peer_ended: bool,
    pub(super) ended: bool,
    /// The number of the end, until the peer has received it.
    pub(super) undelivered_end: Option<u64>,
    pub(super) reset: Option<ResetReason>,
}

impl StreamState {
    pub(super) fn new() -> Self {
        Self {
            unread: Unread::default(),
            window: FIRST_CREDIT,
            granted: FIRST_CREDIT,
            read: 0,
            read_at_this_size: 0,
            credit: FIRST_CREDIT,
            peer_ended: false,
            ended: false,
            undelivered_end: None,
            reset: None,
        }
    }

    pub(super) fn window(&self) -> usize {
        self.window
    }

    pub(super) fn peer_has_ended(&self) -> bool {
        self.peer_ended
    }

    pub(super) fn delivery(&self) -> EndDelivery {
        match (self.ended && self.undelivered_end.is_none(), self.reset) {
            (true, _) => EndDelivery::Delivered,
            (false, Some(reason)) => EndDelivery::Reset(reason),
            (false, None) => EndDelivery::Waiting,
        }
    }

    /// The peer has received so many records. Whether the end is among them for the first time. Not
    /// after a reset: the peer also acknowledges what it throws away.
    pub(super) fn delivered(&mut self, acked: u64) -> bool {
        let is_there = |end: &mut u64| *end < acked;
        self.reset.is_none() && self.undelivered_end.take_if(is_there).is_some()
    }

    /// Both directions have ended and everything was read.
    pub(super) fn is_over(&self) -> bool {
        self.reset.is_some() || (self.ended && self.peer_ended && self.unread.is_empty())
    }

    pub(super) fn take_in(&mut self, bytes: Bytes) -> Result<(), TunnelFault> {
        self.granted = self.granted.checked_sub(bytes.len()).ok_or(TunnelFault::Overrun)?;
        if self.peer_ended {
            return Err(TunnelFault::Overrun);
        }
        if !bytes.is_empty() && self.reset.is_none() {
            self.unread.push(bytes);
        }
        Ok(())
    }

    /// Nothing more follows. An end after a reset says nothing: what was thrown away was not complete.
    pub(super) fn peer_ends(&mut self) {
        self.peer_ended |= self.reset.is_none();
    }

    /// What the peer sent before its end stays readable: a server that ends its answer and then drops
    /// the stream has said everything, and a reset must not take it back.
    pub(super) fn reset(&mut self, reason: ResetReason) {
        if !self.peer_ended {
            self.unread.clear();
        }
        self.reset.get_or_insert(reason);
    }

    pub(super) fn read(&mut self, most: usize) -> ReadOutcome {
        if let Some(reason) = self.reset
            && !self.peer_ended
        {
            return ReadOutcome::Reset(reason);
        }
        let Some(bytes) = self.unread.pop(most) else {
            return if self.peer_ended { ReadOutcome::End } else { ReadOutcome::Blocked };
        };
        self.read += bytes.len();
        self.read_at_this_size = self.read_at_this_size.saturating_add(bytes.len());
        ReadOutcome::Bytes(bytes)
    }

    /// Whether the window should double: a whole one was read and nothing is left, so the reader waits for
    /// the sender.
    pub(super) fn wants_to_grow(&self) -> bool {
        self.unread.is_empty()
            && self.read_at_this_size >= self.window
            && self.window < LARGEST_WINDOW
            && !self.peer_ended
            && self.reset.is_none()
    }

    /// How much credit to grant now, if any; `grows` says that the window doubles.
    pub(super) fn grant(&mut self, grows: bool) -> Option<u32> {
        if self.peer_ended || self.reset.is_some() || !(grows || self.read >= self.window / 2) {
            return None;
        }
        let mut credit = std::mem::take(&mut self.read);
        if grows {
            credit += self.window;
            self.window *= 2;
            self.read_at_this_size = 0;
        }
        self.granted += credit;
        u32::try_from(credit).ok()
    }
}
