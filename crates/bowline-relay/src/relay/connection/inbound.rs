//! Reading: bytes into messages, messages to where they belong.
//!
//! Bytes are read into a buffer that all connections of a thread share, and only what cannot be
//! taken yet is kept with the connection: a message that is not whole, or messages whose receiver
//! has no room. While anything is held, nothing more is read, and TCP tells the sender.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bowline_sbrp::control::ControlCode;
use bowline_sbrp::frame::{Frame, Glance, Inbound, Violation};
use bowline_sbrp::id::SessionId;
use bytes::Bytes;
use tokio::io::{AsyncRead as _, ReadBuf};

use super::forward::{self, Sender, Stop};
use super::{Connection, End, Hold, Who};
use crate::relay::dock::Where;
use crate::relay::line::{Line, Peer};
use crate::relay::ws::decode::{Item, Next};
use crate::relay::ws::encode;
use crate::relay::ws::fault::Fault;
use crate::relay::ws::head::Head;
use crate::relay::ws::mask::Masked;

/// What is read at once, at most.
const SCRATCH: usize = 64 << 10;
/// Up to here, the rest of a message is read together with what follows it.
const SHORT: usize = 4 << 10;
/// Own words that may wait before more input is looked at.
const OWN_WORDS: usize = 64;
/// The pause between two warnings of one connection.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// What a thread's connections share while one of them reads.
struct Scratch {
    bytes: Vec<u8>,
    wakes: Vec<Waker>,
}

/// Where messages of a session go.
enum Receiver {
    Line(Arc<Line>),
    /// Nowhere; the sender is told this.
    Refused(ControlCode),
    /// Nowhere; the sender is about to be told why, or closed.
    Soon,
}

thread_local! {
    static SCRATCH_OF_THREAD: RefCell<Scratch> =
        RefCell::new(Scratch { bytes: vec![0; SHORT + SCRATCH], wakes: Vec::new() });
}

impl Connection {
    /// Takes in what is there, or reads more. Ready when something was done.
    pub(super) fn poll_inbound(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        SCRATCH_OF_THREAD.with_borrow_mut(|Scratch { bytes, wakes }| {
            let done = self.poll_scratch(bytes, wakes, cx);
            for receiver in wakes.drain(..) {
                receiver.wake();
            }
            let (frames, count) = std::mem::take(&mut self.passed);
            if frames > 0 {
                self.shared.meters.forwarded(self.who.other_role(), frames, count);
            }
            done
        })
    }

    fn poll_scratch(
        &mut self,
        scratch: &mut [u8],
        wakes: &mut Vec<Waker>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), End>> {
        if self.hold == Hold::Own && self.is_wordy() {
            return Poll::Pending;
        }
        if self.again {
            let input = std::mem::take(&mut self.input);
            let before = self.hold;
            let used = self.take_in(&input, wakes, cx)?;
            let held = self.hold != Hold::No;
            self.keep(input, used);
            // Held as before: nothing was done, and somebody else has to move first.
            return match held && used == 0 && before != Hold::No {
                true => Poll::Pending,
                false => Poll::Ready(Ok(())),
            };
        }
        let kept = self.input.len();
        if self.needs.saturating_sub(kept) <= SHORT && kept <= SHORT {
            scratch[..kept].copy_from_slice(&self.input);
            let mut buffer = ReadBuf::new(&mut scratch[kept..]);
            let read = ready!(self.poll_read(&mut buffer, cx))?;
            let end = kept + read;
            let used = self.take_in(&scratch[..end], wakes, cx)?;
            self.input.clear();
            self.input.extend_from_slice(&scratch[used..end]);
        } else {
            // A long message, of which a part is here: its rest goes where it is needed.
            let most = (self.needs - kept).min(scratch.len());
            let mut buffer = ReadBuf::new(&mut scratch[..most]);
            let read = ready!(self.poll_read(&mut buffer, cx))?;
            self.input.reserve_exact(self.needs - kept);
            self.input.extend_from_slice(&scratch[..read]);
            if self.input.len() >= self.needs {
                let input = std::mem::take(&mut self.input);
                let used = self.take_in(&input, wakes, cx)?;
                self.keep(input, used);
            }
        }
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(
        &mut self,
        buffer: &mut ReadBuf<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, End>> {
        let read: io::Result<()> = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        match (read, buffer.filled().len()) {
            (Ok(()), 0) | (Err(_), _) => Poll::Ready(Err(End::Lost)),
            (Ok(()), count) => {
                self.pulse.heard(Instant::now());
                Poll::Ready(Ok(count))
            }
        }
    }

    fn keep(&mut self, mut input: Vec<u8>, used: usize) {
        if used < input.len() {
            input.drain(..used);
            self.input = input;
        }
    }

    /// Takes in as much of the input as is whole and can be passed on; gives what that was.
    fn take_in(
        &mut self,
        input: &[u8],
        wakes: &mut Vec<Waker>,
        cx: &mut Context<'_>,
    ) -> Result<usize, End> {
        let before = std::mem::replace(&mut self.hold, Hold::No);
        self.again = false;
        let mut at = 0;
        let mut allowed = self.bucket.available(Instant::now());
        if let Some(whole) = self.gathered.take() {
            self.gathered(whole, before, wakes, cx)?;
        }
        while self.hold == Hold::No {
            let next = self.decoder.look(&input[at..]).map_err(broken)?;
            if let Next::Needs(needs) = next {
                self.needs = needs;
                return Ok(at);
            }
            if allowed == 0 {
                self.hold_for_rate();
                break;
            }
            match next {
                Next::Needs(_) => {}
                Next::Other { head, used } => {
                    let rest = &input[at..];
                    at += used;
                    self.other(head, rest, before, wakes, cx)?;
                    allowed -= 1;
                    self.bucket.spend(1);
                }
                Next::Message { message, used } => {
                    let rest = &input[at..];
                    let (used, frames) =
                        self.message(message, used, rest, allowed, before, wakes, cx)?;
                    at += used;
                    allowed -= frames;
                    self.bucket.spend(frames);
                }
            }
        }
        self.again = true;
        Ok(at)
    }

    /// A whole message, and with it those behind it that go the same way. Gives the bytes and the
    /// messages that were taken.
    #[expect(clippy::too_many_arguments, reason = "one call, from the loop above")]
    fn message(
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
        let role = self.who.role();
        let glance = Glance::at(role, &start[..known], message.len()).map_err(refused)?;
        let Glance::Forward { session } = glance else {
            self.for_relay(message)?;
            return Ok((used, 1));
        };
        // Twice, because a daemon may know a client that has gone and come again.
        for _ in 0..2 {
            let sender = self.sender(before, cx);
            let known = match &self.who {
                Who::Daemon { routes } => routes.find(session),
                Who::Client { .. } => None,
            };
            let run = match known {
                Some(to) => forward::run(sender, session, to, rest, most, wakes),
                None => match self.receiver(session)? {
                    Receiver::Line(to) => forward::run(sender, session, &to, rest, most, wakes),
                    Receiver::Refused(code) => {
                        self.discard(code, session);
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
    fn gathered(
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
        Sender { link: self.line.link, role: self.who.role(), waker: cx.waker(), known }
    }

    /// Who receives messages of this session now. A daemon asks for those it does not know.
    fn receiver(&mut self, session: SessionId) -> Result<Receiver, End> {
        match &mut self.who {
            Who::Client { session: own } if *own != session => {
                Err(told(ControlCode::SessionNotFound, Some(session)))
            }
            Who::Client { .. } => Ok(match self.line.peer() {
                Peer::Paired(daemon) => Receiver::Line(daemon),
                Peer::Paused => Receiver::Refused(ControlCode::SessionPaused),
                Peer::Pending => Receiver::Refused(ControlCode::SessionPending),
                // Refused or over: it is being closed.
                Peer::Nobody => Receiver::Soon,
            }),
            Who::Daemon { routes } => {
                Ok(match self.dock.client_of(self.line.link, session) {
                    Where::To(line) => {
                        routes.learn(session, Arc::clone(&line));
                        Receiver::Line(line)
                    }
                    Where::Refuse(code) => Receiver::Refused(code),
                    // Replaced: it is being closed.
                    Where::Stale => Receiver::Soon,
                })
            }
        }
    }

    /// Whether a receiver that takes nothing may merely be out of date. If it is not, the sender
    /// waits for what it is about to be told.
    fn was_stale(&mut self, session: SessionId) -> bool {
        match &mut self.who {
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

    /// The sender learns that its message went nowhere (SBRP-RELAY-19).
    fn discard(&mut self, code: ControlCode, session: SessionId) {
        self.shared.meters.discarded();
        self.line.tell(code, Some(session));
        self.hold_if_wordy();
    }

    /// A signal, a ping, a pong.
    fn for_relay(&mut self, message: Masked<'_>) -> Result<(), End> {
        let mut whole = Vec::with_capacity(message.len());
        message.append_to(&mut whole);
        match Inbound::read(self.who.role(), Bytes::from(whole)).map_err(refused)? {
            Inbound::Ping(beat) => {
                #[cfg(test)]
                assert_ne!(beat.as_bytes(), super::tests::BOMB, "as the test wished");
                self.line.lock().say(&Frame::Pong(beat).encode());
                self.hold_if_wordy();
            }
            Inbound::Signal { session, signal } => {
                self.dock.signalled(self.line.link, session, signal, &self.shared.meters);
                self.hold_if_wordy();
            }
            Inbound::Pong(_) | Inbound::Forward { .. } => {}
        }
        Ok(())
    }

    /// A part of a message, or a frame that is WebSocket's own.
    fn other(
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
                self.line.lock().append(|out| encode::pong(payload, out));
                self.hold_if_wordy();
            }
            Item::Close(code) => return Err(End::Closed(code)),
            Item::Gathered(whole) => self.gathered(whole, before, wakes, cx)?,
        }
        Ok(())
    }

    fn is_wordy(&self) -> bool {
        self.line.lock().frames() >= OWN_WORDS
    }

    fn hold_if_wordy(&mut self) {
        if self.is_wordy() {
            self.hold = Hold::Own;
        }
    }

    /// The message waits; its sender is told, not for each of them (SBRP-RELAY-07).
    fn hold_for_rate(&mut self) {
        let now = Instant::now();
        self.hold = Hold::Rate { until: self.bucket.refilled(now) };
        if self.warned.is_none_or(|warned| now >= warned + WARN_EVERY) {
            self.warned = Some(now);
            self.line.tell(ControlCode::RateLimited, None);
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

fn broken(fault: Fault) -> End {
    let (code, session) = fault.violation().answer();
    End::Refused { code, session, close: fault.close_code() }
}
