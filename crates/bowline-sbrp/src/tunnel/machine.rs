//! A tunnel at one end, without I/O: streams in, messages for the sealed session out, and back.
//!
//! The driver asks for [`Tunnel::next_message`] while a session is there and gives what comes to
//! [`Tunnel::receive`]. Programs open, read, write and end streams at any time, also while there is no
//! session: what they write waits, within bounds.

use std::collections::HashMap;

use bytes::Bytes;

use super::budget::{BudgetShare, TunnelBudget};
use super::positions::Positions;
use super::record::{self, Message, Record};
use super::stream::{EndDelivery, FIRST_CREDIT, ReadOutcome, StreamState, WriteOutcome};
use super::{LONGEST_SERVICE, MOST_STREAMS, ResetReason, StreamId, TunnelFault};
use crate::time::Instant;

/// How far the windows of all streams together may grow beyond the first credit of each.
pub(super) const SHARED_WINDOW: usize = 8 << 20;

/// Which end this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelSide {
    /// Opens streams.
    Client,
    /// Accepts them.
    Daemon,
}

/// What a received message means for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelEvent {
    /// The client opened a stream.
    Opened(StreamId, String),
    /// There is something to read, or the stream is over.
    Readable(StreamId),
    /// There is credit, or the stream is over.
    Writable(StreamId),
    /// There is room again for the data of every stream.
    Room,
    /// The peer has received a stream's end, and so all that was written before.
    Delivered(StreamId),
    /// The peer needs the tunnel no more.
    Closed,
}

/// One end of a tunnel.
#[derive(Debug)]
pub struct Tunnel {
    side: TunnelSide,
    positions: Positions,
    streams: HashMap<StreamId, StreamState>,
    /// The highest stream that was opened.
    last: u32,
    /// By how much windows have grown.
    grown: usize,
    budget: BudgetShare,
    closing: Closing,
    /// The peer needs the tunnel no more: nothing is sent or received after it.
    peer_closed: bool,
    /// The peer broke a rule: nobody knows what its streams hold.
    broken: Option<TunnelFault>,
}

/// Whether this end has said that it needs the tunnel no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// After what was written before.
    Soon,
    Said,
}

impl Tunnel {
    /// A tunnel with a budget of its own.
    pub fn new(side: TunnelSide) -> Self {
        Self::within(side, TunnelBudget::default())
    }

    /// A tunnel that shares a budget with others.
    pub fn within(side: TunnelSide, budget: TunnelBudget) -> Self {
        let (positions, streams) = (Positions::default(), HashMap::new());
        let closing = Closing::No;
        Self {
            side,
            positions,
            streams,
            last: 0,
            grown: 0,
            budget: BudgetShare::new(budget),
            closing,
            peer_closed: false,
            broken: None,
        }
    }

    /// How many records were received: what the next hello says.
    pub fn received(&self) -> u64 {
        self.positions.received()
    }

    /// How many streams there are.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// A new session begins. The peer has received so many records; the others are sent again. On an
    /// error the tunnel cannot go on.
    pub fn resume(&mut self, peer_received: u64) -> Result<Vec<TunnelEvent>, TunnelFault> {
        self.broken.map_or(Ok(()), Err)?;
        let made_room = self.positions.resume(peer_received, &mut self.budget)?;
        Ok(self.acknowledged(made_room))
    }

    /// The next message for the session.
    pub fn next_message(&mut self, now: Instant) -> Option<Bytes> {
        if let Some(message) = self.positions.take(now) {
            return Some(message);
        }
        (self.closing == Closing::Soon).then(|| {
            self.closing = Closing::Said;
            Message::close()
        })
    }

    /// Whether there is something to send.
    pub fn has_message(&self) -> bool {
        self.positions.has_more() || self.closing == Closing::Soon
    }

    /// Says that the tunnel is needed no more, after what was written before. The peer then does not
    /// wait for another session.
    pub fn close(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::Soon;
        }
    }

    /// Whether a writer that was refused waits for what is unacknowledged, and not for credit.
    pub fn is_window_full(&self) -> bool {
        self.positions.is_full()
    }

    /// Whether the close was sent.
    pub fn has_said_close(&self) -> bool {
        self.closing == Closing::Said
    }

    /// Whether the other end has closed the tunnel.
    pub fn peer_has_closed(&self) -> bool {
        self.peer_closed
    }

    /// Something was received that was not acknowledged yet.
    pub fn owes_ack(&self) -> bool {
        self.positions.owes_ack()
    }

    /// All messages that have come were given to [`Tunnel::receive`]: a good moment to acknowledge them.
    pub fn drained(&mut self) {
        self.positions.drained();
    }

    /// Sends an acknowledgement next. It also shows the peer what it has not received.
    pub fn acknowledge(&mut self) {
        self.positions.say_soon();
    }

    /// Opens a stream to a service; `None` if there are as many as there may be, the peer acknowledges
    /// nothing, or no service can have this name.
    pub fn open(&mut self, service: &str) -> Option<StreamId> {
        let is_name = (1..=LONGEST_SERVICE).contains(&service.len());
        let has_room = self.streams.len() < MOST_STREAMS && self.positions.has_room_to_open();
        if self.side != TunnelSide::Client || !is_name || !has_room {
            return None;
        }
        let last = self.last.checked_add(1)?;
        if !self.budget.take(FIRST_CREDIT) {
            return None;
        }
        self.last = last;
        let stream = StreamId(self.last);
        self.streams.insert(stream, StreamState::new());
        self.send(&Record::Open { stream, service: service.to_owned() });
        Some(stream)
    }

    /// Takes received bytes out of a stream.
    pub fn read(&mut self, id: StreamId, most: usize) -> ReadOutcome {
        let Some(stream) = self.streams.get_mut(&id) else {
            return ReadOutcome::Reset(ResetReason::TunnelLost);
        };
        let outcome = stream.read(most);
        let window = stream.window();
        let grows = stream.wants_to_grow()
            && SHARED_WINDOW - self.grown >= window
            && self.budget.take(window);
        if grows {
            self.grown += window;
        }
        if let Some(bytes) = stream.grant(grows) {
            self.send(&Record::Credit { stream: id, bytes });
        }
        outcome
    }

    /// Takes as much of the bytes as fits into one record. After the peer's close nobody reads them:
    /// they are thrown away, so that a program can go on with what it has received.
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) -> WriteOutcome {
        let Some(stream) = self.streams.get_mut(&id) else {
            return WriteOutcome::Reset(ResetReason::TunnelLost);
        };
        if let Some(reason) = stream.reset {
            return WriteOutcome::Reset(reason);
        }
        if stream.ended {
            return WriteOutcome::Ended;
        }
        if self.peer_closed {
            return WriteOutcome::Wrote(bytes.len());
        }
        let room = if stream.credit > 0 { self.positions.room() } else { 0 };
        let count = bytes.len().min(stream.credit).min(room);
        if count == 0 && !bytes.is_empty() {
            return WriteOutcome::Blocked;
        }
        if count > 0 {
            stream.credit -= count;
            let message = record::data(self.positions.number(), id, &bytes[..count]);
            self.positions.add(message);
        }
        WriteOutcome::Wrote(count)
    }

    /// Says that nothing more follows in this direction.
    pub fn end(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.ended && stream.reset.is_none() {
            stream.ended = true;
            stream.undelivered_end = (!self.peer_closed).then(|| self.positions.number());
            self.send(&Record::End { stream: id });
        }
    }

    /// Whether the peer has received all that was written to a stream, and its end.
    pub fn delivery(&self, id: StreamId) -> EndDelivery {
        self.streams
            .get(&id)
            .map_or(EndDelivery::Reset(ResetReason::TunnelLost), StreamState::delivery)
    }

    /// Whether the peer has ended its direction of a stream that is not reset.
    pub fn peer_has_ended(&self, id: StreamId) -> bool {
        self.streams
            .get(&id)
            .is_some_and(|stream| stream.peer_has_ended() && stream.reset.is_none())
    }

    /// Ends both directions at once.
    pub fn reset(&mut self, id: StreamId, reason: ResetReason) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.is_over() {
            stream.reset(reason);
            self.send(&Record::Reset { stream: id, reason });
        }
    }

    /// The program has no more use for a stream. If it is not over, it is reset.
    pub fn forget(&mut self, id: StreamId) {
        self.reset(id, ResetReason::Cancelled);
        if let Some(stream) = self.streams.remove(&id) {
            self.grown -= stream.window() - FIRST_CREDIT;
            self.budget.give(stream.window());
        }
    }

    /// The tunnel is gone: all its streams are reset. They have to be told.
    pub fn abort(&mut self) -> Vec<StreamId> {
        for stream in self.streams.values_mut() {
            stream.reset(ResetReason::TunnelLost);
        }
        self.streams.keys().copied().collect()
    }

    /// A message came out of the session. On an error the session is of no more use; whether the tunnel
    /// goes on in the next one says [`TunnelFault::may_resume`].
    pub fn receive(
        &mut self,
        message: &Bytes,
        now: Instant,
    ) -> Result<Vec<TunnelEvent>, TunnelFault> {
        self.broken.map_or(Ok(()), Err)?;
        if self.peer_closed {
            return Ok(vec![]);
        }
        let received = self.read_message(message, now);
        self.broken = received.as_ref().err().copied().filter(|fault| !fault.may_resume());
        received
    }

    fn read_message(
        &mut self,
        message: &Bytes,
        now: Instant,
    ) -> Result<Vec<TunnelEvent>, TunnelFault> {
        let (number, record) = match Message::read(message)? {
            Message::Ack { received, sent } => {
                let made_room =
                    self.positions.acknowledged(received, sent, &mut self.budget, now)?;
                return Ok(self.acknowledged(made_room));
            }
            Message::Close => return Ok(self.peer_closes()),
            Message::Numbered(number, record) => (number, record),
        };
        if self.positions.is_overfull() {
            return Err(TunnelFault::Unacknowledged);
        }
        match self.positions.take_in(number, message.len())? {
            true => self.apply(record),
            false => Ok(vec![]),
        }
    }

    /// The peer has received more than before.
    fn acknowledged(&mut self, made_room: bool) -> Vec<TunnelEvent> {
        let acked = self.positions.acked();
        let delivered = self.streams.iter_mut().filter_map(|(id, stream)| {
            stream.delivered(acked).then_some(TunnelEvent::Delivered(*id))
        });
        made_room.then_some(TunnelEvent::Room).into_iter().chain(delivered).collect()
    }

    /// A client that closes has said all that it had to say on the streams that it ended, and the daemon's
    /// programs go on with that. The other streams are cut off.
    fn peer_closes(&mut self) -> Vec<TunnelEvent> {
        self.peer_closed = true;
        let mut events = Vec::new();
        for (id, stream) in &mut self.streams {
            if self.side == TunnelSide::Daemon && stream.peer_has_ended() {
                stream.undelivered_end = None;
            } else {
                stream.reset(ResetReason::Cancelled);
            }
            events.extend([TunnelEvent::Readable(*id), TunnelEvent::Writable(*id)]);
        }
        events.push(TunnelEvent::Closed);
        events
    }

    fn apply(&mut self, record: Record) -> Result<Vec<TunnelEvent>, TunnelFault> {
        use TunnelEvent::{Opened, Readable, Writable};
        if matches!(record, Record::End { .. } | Record::Reset { .. }) {
            // Whoever ends a stream may be waiting for it.
            self.positions.say_soon();
        }
        match record {
            Record::Open { stream, service } => {
                if self.side != TunnelSide::Daemon || stream.0 <= self.last {
                    return Err(TunnelFault::Opened);
                }
                self.last = stream.0;
                if !self.has_place() || !self.budget.take(FIRST_CREDIT) {
                    self.send(&Record::Reset { stream, reason: ResetReason::TooMany });
                    return Ok(vec![]);
                }
                self.streams.insert(stream, StreamState::new());
                Ok(vec![Opened(stream, service)])
            }
            Record::Data { stream, bytes } => match self.known(stream)? {
                Some(known) => known.take_in(bytes).map(|()| vec![Readable(stream)]),
                None => Ok(vec![]),
            },
            Record::Credit { stream, bytes } => match self.known(stream)? {
                Some(known) => {
                    known.credit = known.credit.saturating_add(bytes as usize);
                    Ok(vec![Writable(stream)])
                }
                None => Ok(vec![]),
            },
            Record::End { stream } => match self.known(stream)? {
                Some(known) => {
                    known.peer_ends();
                    Ok(vec![Readable(stream)])
                }
                None => Ok(vec![]),
            },
            Record::Reset { stream, reason } => match self.known(stream)? {
                Some(known) => {
                    known.reset(reason);
                    Ok(vec![Readable(stream), Writable(stream)])
                }
                None => Ok(vec![]),
            },
        }
    }

    /// Whether the client may have one more stream. Streams that are over do not count, because the client
    /// does not count them: their programs may only be about to drop them.
    fn has_place(&self) -> bool {
        let open = || self.streams.values().filter(|stream| !stream.is_over()).count();
        self.streams.len() < MOST_STREAMS
            || (self.streams.len() < 2 * MOST_STREAMS && open() < MOST_STREAMS)
    }

    /// A stream that was opened; `None` if it is over here, and the peer did not know yet.
    fn known(&mut self, id: StreamId) -> Result<Option<&mut StreamState>, TunnelFault> {
        if id.0 == 0 || id.0 > self.last {
            return Err(TunnelFault::UnknownStream);
        }
        Ok(self.streams.get_mut(&id))
    }

    fn send(&mut self, record: &Record) {
        if self.peer_closed {
            return;
        }
        let message = record.message(self.positions.number());
        self.positions.add(message);
    }
}

#[cfg(test)]
mod tests;
