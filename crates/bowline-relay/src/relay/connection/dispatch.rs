//! What becomes of what was read: passed on, answered, refused, or held until it can be.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bowline_sbrp::control::ControlCode;
use bowline_sbrp::frame::{Frame, Glance, Inbound, Violation};
use bowline_sbrp::id::SessionId;
use bowline_sbrp::relay::{Rejected, Route};
use bytes::Bytes;

use super::forward::{self, Sender, Stop};
use super::{Connection, End, Hold, Who};
use crate::relay::line::Line;
use crate::relay::ws::decode::Item;
use crate::relay::ws::encode;
use crate::relay::ws::fault::Fault;
use crate::relay::ws::head::Head;
use crate::relay::ws::mask::Masked;

/// Own words that may wait before more input is looked at.
const OWN_WORDS: usize = 64;
/// The pause between two warnings of one connection.
const WARN_EVERY: Duration = Duration::from_secs(1);

impl Connection {
    /// A whole message, and with it those behind it that go the same way. Gives the bytes and the
    /// messages that were taken.
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
    ) -> Result<(usize, usize), End> {
        let (start, known) = message.start();
        let role = self.mooring.who.role();
        let glance = Glance::at(role, &start[..known], message.len()).map_err(refused)?;
        let Glance::Forward { session } = glance else {
            self.for_relay(message)?;
            return Ok((used, 1));
        };
        for first in [true, false] {
            let sender = self.sender(before, cx);
            let known = match &self.mooring.who {
                Who::Daemon { routes } => routes.find(session),
                Who::Client { .. } => None,
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
                        self.hold_if_wordy();
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

    /// A message that came in parts: as if it had come in one piece. Kept if it has to wait.
    pub(super) fn gathered(
        &mut self,
        whole: Vec<u8>,
        before: Hold,
        wakes: &mut Vec<Waker>,
        cx: &mut Context<'_>,
    ) -> Result<(), End> {
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
            link: self.mooring.line.link,
            role: self.mooring.who.role(),
            waker: cx.waker(),
            known,
        }
    }

    /// Where messages of this session go: a client's by the route beside its queue, a daemon's by
    /// the table. A refused sender that stays has been told.
    fn route(&mut self, session: SessionId) -> Route<Arc<Line>> {
        let line = &self.mooring.line;
        match &mut self.mooring.who {
            Who::Client { session: token } => line.route(*token, session),
            Who::Daemon { routes } => {
                let route = self.mooring.dock.client_of(line.link, session);
                match &route {
                    Route::To(to) => routes.learn(session, Arc::clone(to), |to| to.is_open()),
                    Route::Refuse(code) if !code.closes(line.role) => {
                        line.tell(*code, Some(session));
                    }
                    Route::Refuse(_) | Route::Stale => {}
                }
                route
            }
        }
    }

    fn forget(&mut self, session: SessionId) {
        if let Who::Daemon { routes } = &mut self.mooring.who {
            routes.forget(session);
        }
    }

    /// A signal, a ping, a pong.
    fn for_relay(&mut self, message: Masked<'_>) -> Result<(), End> {
        let mut whole = Vec::with_capacity(message.len());
        message.append_to(&mut whole);
        match Inbound::read(self.mooring.who.role(), Bytes::from(whole)).map_err(refused)? {
            Inbound::Ping(beat) => {
                #[cfg(test)]
                assert_ne!(beat.as_bytes(), super::tests::BOMB, "as the test wished");
                self.mooring.line.lock().say(&Frame::Pong(beat).encode());
                self.hold_if_wordy();
            }
            Inbound::Signal { session, signal } => {
                self.mooring.dock.signalled(
                    self.mooring.line.link,
                    session,
                    signal,
                    &self.shared.meters,
                );
                self.hold_if_wordy();
            }
            Inbound::Pong(_) | Inbound::Forward { .. } => {}
        }
        Ok(())
    }

    /// A part of a message, or a frame that is WebSocket's own.
    pub(super) fn other(
        &mut self,
        head: Head,
        input: &[u8],
        before: Hold,
        wakes: &mut Vec<Waker>,
        cx: &mut Context<'_>,
    ) -> Result<(), End> {
        match self.decoder.take(head, input).map_err(broken)? {
            Item::Part | Item::Pong => {}
            Item::Ping(payload) => {
                self.mooring.line.lock().append(|out| encode::pong(payload, out));
                self.hold_if_wordy();
            }
            Item::Close(code) => return Err(End::Closed(code)),
            Item::Gathered(whole) => self.gathered(whole, before, wakes, cx)?,
        }
        Ok(())
    }

    pub(super) fn is_wordy(&self) -> bool {
        self.mooring.line.lock().frames() >= OWN_WORDS
    }

    fn hold_if_wordy(&mut self) {
        if self.is_wordy() {
            self.hold = Hold::Own;
        }
    }

    /// The message waits; its sender is told, not for each of them (SBRP-RELAY-07).
    pub(super) fn hold_for_rate(&mut self) {
        let now = Instant::now();
        self.hold = Hold::Rate { until: self.bucket.refilled(now) };
        if self.warned.is_none_or(|warned| now >= warned + WARN_EVERY) {
            self.warned = Some(now);
            self.mooring.line.tell(ControlCode::RateLimited, None);
        }
    }
}

fn told(code: ControlCode, session: Option<SessionId>) -> End {
    End::Refused { code, session, close: super::farewell::close_code(code) }
}

fn refused(violation: Violation) -> End {
    let (code, session) = violation.answer();
    told(code, session)
}

pub(super) fn broken(fault: Fault) -> End {
    let (code, session) = fault.violation().answer();
    End::Refused { code, session, close: fault.close_code() }
}
