//! What becomes of what was read: passed on, answered, refused, or held until it can be.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bowline_sbrp::control::ControlCode;
use bowline_sbrp::frame::{Frame, Glance, Inbound, Violation};
use bowline_sbrp::id::SessionId;
use bytes::Bytes;

use super::forward::{self, Sender, Stop};
use super::{Connection, End, Hold, Who};
use crate::relay::dock::Where;
use crate::relay::line::{Line, Peer};
use crate::relay::ws::decode::Item;
use crate::relay::ws::encode;
use crate::relay::ws::fault::Fault;
use crate::relay::ws::head::Head;
use crate::relay::ws::mask::Masked;

/// Own words that may wait before more input is looked at.
const OWN_WORDS: usize = 64;
/// The pause between two warnings of one connection.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// Where messages of a session go.
enum Receiver {
    Line(Arc<Line>),
    /// Nowhere, and the sender was told so (SBRP-RELAY-19).
    Told,
    /// Nowhere; the sender is about to be told why, or closed.
    Soon,
}

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
        // Twice, because a daemon may know a client that has gone and come again.
        for _ in 0..2 {
            let sender = self.sender(before, cx);
            let known = match &self.mooring.who {
                Who::Daemon { routes } => routes.find(session),
                Who::Client { .. } => None,
            };
            let run = match known {
                Some(to) => forward::run(sender, session, to, rest, most, wakes),
                None => match self.receiver(session)? {
                    Receiver::Line(to) => forward::run(sender, session, &to, rest, most, wakes),
                    Receiver::Told => {
                        self.shared.meters.discarded();
                        self.hold_if_wordy();
                        return Ok((used, 1));
                    }
                    Receiver::Soon => {
                        self.hold = Hold::Lifecycle;
                        return Ok((0, 0));
                    }
                },
            };
            self.passed.0 += run.frames;
            self.passed.1 += run.bytes;
            match run.stop {
                Stop::Done => {}
                Stop::Full { receiver, drains } => self.hold = Hold::Full { receiver, drains },
                Stop::Gone if run.frames == 0 && self.was_stale(session) => continue,
                Stop::Gone => {}
            }
            return Ok((run.used, run.frames));
        }
        // Its receiver ends, and everybody concerned is about to be told.
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

    /// Who receives messages of this session now. A daemon asks for those it does not know.
    fn receiver(&mut self, session: SessionId) -> Result<Receiver, End> {
        match &mut self.mooring.who {
            Who::Client { session: own } if *own != session => {
                Err(told(ControlCode::SessionNotFound, Some(session)))
            }
            Who::Client { .. } => Ok(match self.mooring.line.peer_or_tell(session) {
                Peer::Paired(daemon) => Receiver::Line(daemon),
                Peer::Paused | Peer::Pending => Receiver::Told,
                // Refused or over: it is being closed.
                Peer::Nobody => Receiver::Soon,
            }),
            Who::Daemon { routes } => {
                Ok(match self.mooring.dock.client_of(self.mooring.line.link, session) {
                    Where::To(line) => {
                        routes.learn(session, Arc::clone(&line));
                        Receiver::Line(line)
                    }
                    Where::Refuse(code) => {
                        self.mooring.line.tell(code, Some(session));
                        Receiver::Told
                    }
                    // Replaced: it is being closed.
                    Where::Stale => Receiver::Soon,
                })
            }
        }
    }

    /// Whether a receiver that takes nothing may merely be out of date. If it is not, the sender
    /// waits for what it is about to be told.
    fn was_stale(&mut self, session: SessionId) -> bool {
        match &mut self.mooring.who {
            Who::Daemon { routes } => {
                routes.forget(session);
                true
            }
            Who::Client { .. } => {
                self.hold = Hold::Lifecycle;
                false
            }
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
