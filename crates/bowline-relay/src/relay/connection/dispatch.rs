//! Handles a decoded message: forward it, answer it, refuse it, or hold it.
//!
//! The destination is decided by [`bowline_sbrp::relay`]: by the route stored with a client's
//! queue, by the daemon's route cache, or by the pair table.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bowline_sbrp::control::ControlCode;
use bowline_sbrp::frame::{Frame, HeaderVerdict, Inbound, Violation};
use bowline_sbrp::id::SessionId;
use bowline_sbrp::relay::{Rejected, Route};
use bytes::Bytes;

use super::forward::{self, Sender, Stop};
use super::{Connection, ConnectionEnd, Hold, Side};
use crate::relay::outbound_queue::OutboundQueue;
use crate::relay::ws::decode::Item;
use crate::relay::ws::encode;
use crate::relay::ws::fault::Fault;
use crate::relay::ws::head::FrameHead;
use crate::relay::ws::mask::Masked;

/// Messages in this connection's own queue above which its input is not read.
const OWN_MESSAGES: usize = 64;
/// The shortest time between two `rate_limited` messages to one connection.
const WARN_EVERY: Duration = Duration::from_secs(1);

impl Connection {
    /// Handles a whole message, and the messages after it that go to the same receiver. Returns how
    /// many bytes and messages were consumed.
    #[expect(clippy::too_many_arguments, reason = "one call, from the loop above")]
    pub(super) fn message(
        &mut self,
        message: Masked<'_>,
        used: usize,
        rest: &[u8],
        most: usize,
        before: Hold,
        wakes: &mut Vec<Waker>,
        cx: &mut Context<'_>,
    ) -> Result<(usize, usize), ConnectionEnd> {
        let (start, known) = message.start();
        let role = self.membership.side.role();
        let verdict = HeaderVerdict::at(role, &start[..known], message.len()).map_err(refused)?;
        let HeaderVerdict::Forward { session } = verdict else {
            self.for_relay(message)?;
            return Ok((used, 1));
        };
        for first in [true, false] {
            let sender = self.sender(before, cx);
            let known = match &self.membership.side {
                Side::Daemon { routes } => routes.find(session),
                Side::Client { .. } => None,
            };
            let run = match known {
                Some(to) => forward::run(sender, session, to, rest, most, wakes),
                None => match self.route(session) {
                    Route::To(to) => forward::run(sender, session, &to, rest, most, wakes),
                    Route::Refuse(code) if code.closes(role) => {
                        return Err(told(code, Some(session)));
                    }
                    Route::Refuse(_) => {
                        self.shared.meters.discarded();
                        self.hold_if_own_queue_full();
                        return Ok((used, 1));
                    }
                    Route::Stale => {
                        self.hold = Hold::Lifecycle;
                        return Ok((0, 0));
                    }
                },
            };
            self.passed.0 += run.frames;
            self.passed.1 += run.bytes;
            match run.stop {
                Stop::Rejected if run.frames == 0 => match Rejected::after(role, first) {
                    Rejected::Wait => self.hold = Hold::Lifecycle,
                    Rejected::RouteAgain => {
                        self.forget(session);
                        continue;
                    }
                    Rejected::Discard => {
                        self.forget(session);
                        break;
                    }
                },
                Stop::Full { receiver, drains } => self.hold = Hold::Full { receiver, drains },
                Stop::Done | Stop::Rejected => {}
            }
            return Ok((run.used, run.frames));
        }
        self.shared.meters.discarded();
        Ok((used, 1))
    }

    /// Handles a reassembled message like one in a single frame. Stores it if it has to wait.
    pub(super) fn gathered(
        &mut self,
        whole: Vec<u8>,
        before: Hold,
        wakes: &mut Vec<Waker>,
        cx: &mut Context<'_>,
    ) -> Result<(), ConnectionEnd> {
        let frame = encode::as_from_client(&whole);
        let (_, taken) =
            self.message(Masked::plain(&whole), frame.len(), &frame, 1, before, wakes, cx)?;
        if taken == 0 {
            self.gathered = Some(whole);
        }
        Ok(())
    }

    fn sender<'a>(&self, before: Hold, cx: &'a Context<'_>) -> Sender<'a> {
        let known = match before {
            Hold::Full { receiver, drains } => Some((receiver, drains)),
            _ => None,
        };
        Sender {
            connection: self.membership.queue.connection,
            role: self.membership.side.role(),
            waker: cx.waker(),
            known,
        }
    }

    /// The receiver of this session's messages: a client's by the route stored with its queue, a
    /// daemon's by the pair table. If the sender is refused but not closed, it has been notified.
    fn route(&mut self, session: SessionId) -> Route<Arc<OutboundQueue>> {
        let queue = &self.membership.queue;
        match &mut self.membership.side {
            Side::Client { session: token } => queue.route(*token, session),
            Side::Daemon { routes } => {
                let route = self.membership.slot.route_from_daemon(queue.connection, session);
                match &route {
                    Route::To(to) => routes.learn(session, Arc::clone(to), |to| to.is_open()),
                    Route::Refuse(code) if !code.closes(queue.role) => {
                        queue.tell(*code, Some(session));
                    }
                    Route::Refuse(_) | Route::Stale => {}
                }
                route
            }
        }
    }

    fn forget(&mut self, session: SessionId) {
        if let Side::Daemon { routes } = &mut self.membership.side {
            routes.forget(session);
        }
    }

    /// Handles a message for the relay itself: a signal, a ping, or a pong.
    fn for_relay(&mut self, message: Masked<'_>) -> Result<(), ConnectionEnd> {
        let mut whole = Vec::with_capacity(message.len());
        message.append_to(&mut whole);
        match Inbound::read(self.membership.side.role(), Bytes::from(whole)).map_err(refused)? {
            Inbound::Ping(ping) => {
                #[cfg(test)]
                assert_ne!(ping.as_bytes(), super::tests::BOMB, "as the test wished");
                self.membership.queue.lock().push_own(&Frame::Pong(ping).encode());
                self.hold_if_own_queue_full();
            }
            Inbound::Signal { session, signal } => {
                self.membership.slot.signalled(
                    self.membership.queue.connection,
                    session,
                    signal,
                    &self.shared.meters,
                );
                self.hold_if_own_queue_full();
            }
            Inbound::Pong(_) | Inbound::Forward { .. } => {}
        }
        Ok(())
    }

    /// Handles a fragment of a message, or a WebSocket control frame.
    pub(super) fn other(
        &mut self,
        head: FrameHead,
        input: &[u8],
        before: Hold,
        wakes: &mut Vec<Waker>,
        cx: &mut Context<'_>,
    ) -> Result<(), ConnectionEnd> {
        match self.decoder.take(head, input).map_err(broken)? {
            Item::Part | Item::Pong => {}
            Item::Ping(payload) => {
                self.membership.queue.lock().append(|out| encode::pong(payload, out));
                self.hold_if_own_queue_full();
            }
            Item::Close(code) => return Err(ConnectionEnd::Closed(code)),
            Item::Gathered(whole) => self.gathered(whole, before, wakes, cx)?,
        }
        Ok(())
    }

    pub(super) fn own_queue_full(&self) -> bool {
        self.membership.queue.lock().frames() >= OWN_MESSAGES
    }

    fn hold_if_own_queue_full(&mut self) {
        if self.own_queue_full() {
            self.hold = Hold::Own;
        }
    }

    /// Holds the input. The sender gets `rate_limited`, at most once a second (SBRP-RELAY-07).
    pub(super) fn hold_for_rate(&mut self) {
        let now = Instant::now();
        self.hold = Hold::Rate { until: self.bucket.refilled(now) };
        if self.warned.is_none_or(|warned| now >= warned + WARN_EVERY) {
            self.warned = Some(now);
            self.membership.queue.tell(ControlCode::RateLimited, None);
        }
    }
}

fn told(code: ControlCode, session: Option<SessionId>) -> ConnectionEnd {
    ConnectionEnd::Refused { code, session, close: super::close::close_code(code) }
}

fn refused(violation: Violation) -> ConnectionEnd {
    let (code, session) = violation.answer();
    told(code, session)
}

pub(super) fn broken(fault: Fault) -> ConnectionEnd {
    let (code, session) = fault.violation().answer();
    ConnectionEnd::Refused { code, session, close: fault.close_code() }
}
