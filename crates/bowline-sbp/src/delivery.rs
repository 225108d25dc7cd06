//! Delivery to one attached surface: what was sent, and what is confirmed as received.
//!
//! Apart, because this is where turns get lost: between "sent" and "received", and between pending
//! and live turns. Pure: the driver reads the log and the live text, writes the frames to the
//! socket, and reports pongs and acks.
//!
//! Invariants
//! - Whole turns are sent in log order, each once per attachment (SBP-L2-05).
//! - A turn is confirmed only by the pong of a barrier sent after it, or by an ack (SBP-L2-06, G5).
//! - The confirmed position never moves back and never passes what was sent (G5).
//! - The chunks of a turn, joined by offset, are byte for byte the stored turn (SBP-L2-07), or its
//!   form for this surface, or a translation of it (SBP-L4-03). The stored turn is never changed.

mod frames;
mod held;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::VecDeque;

use jiff::Timestamp;

use crate::frame::{ServerFrame, TurnStatus};
use crate::id::{Seq, SessionId, TurnId};
use bowline_adapt::{Form, Stream};
use frames::TurnFrame;
use held::Held;

/// A turn from the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedTurn {
    pub seq: Seq,
    pub turn_id: TurnId,
    pub role: Cow<'static, str>,
    pub content: String,
    pub model: Option<String>,
    pub created_at: Timestamp,
    pub step_count: u64,
    /// The cost of this log entry: of the model's last answer in the turn.
    pub cost_usd: f64,
    pub status: TurnStatus,
}

/// A user message from the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedQuestion {
    pub seq: Seq,
    pub turn_id: TurnId,
    pub content: String,
    /// The name of who asked, if it was not the session's user.
    pub author: Option<String>,
    pub created_at: Timestamp,
}

/// A log entry that is delivered to surfaces.
#[derive(Debug, Clone, PartialEq)]
pub enum Logged {
    Turn(LoggedTurn),
    Question(LoggedQuestion),
}

impl Logged {
    pub fn seq(&self) -> Seq {
        match self {
            Logged::Turn(turn) => turn.seq,
            Logged::Question(question) => question.seq,
        }
    }
}

/// The text of a running turn so far.
#[derive(Debug, Clone, Copy)]
pub struct LiveText<'a> {
    pub turn_id: TurnId,
    /// The log position the turn will take.
    pub seq: Seq,
    /// The run of the turn: text of an earlier run is discarded.
    pub attempt: u32,
    /// The byte offset in the turn's text at which `text` begins: at most [`Delivery::read_of`].
    pub from: usize,
    pub text: &'a str,
    /// The step that the turn will be.
    pub step: u64,
    /// The model that was asked.
    pub model: &'a str,
}

/// How live turns are sent to a surface (SBP-L2-09).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Chunks,
    Whole,
}

/// The most barriers that wait for their pong: bounds memory for a surface that never answers.
const MOST_BARRIERS: usize = 1024;

/// The delivery state of one attachment.
#[derive(Debug)]
pub struct Delivery {
    session_id: SessionId,
    mode: Mode,
    /// The output form for the surface; none sends the text unchanged.
    form: Option<Form>,
    /// Turns up to here were pending when the surface attached.
    drain_until: Seq,
    sent: Seq,
    confirmed: Seq,
    turn_index: u64,
    streaming: Option<Streaming>,
    /// Turns may be translated, so no live text is sent.
    translating: bool,
    held: Option<Box<Held>>,
    barriers: VecDeque<Barrier>,
    barriers_sent: u64,
    /// Pongs do not confirm delivery (SBP-L2-21).
    explicit_ack: bool,
    /// Frames carry the fields of wire version 0.9, too.
    reads_0_9: bool,
}

/// A turn that is sent as chunks while it is generated.
#[derive(Debug)]
struct Streaming {
    turn_id: TurnId,
    attempt: u32,
    /// Bytes of the original text processed.
    read: usize,
    /// Bytes of the resulting text sent.
    sent: usize,
    /// Hash of the processed text: tells whether the stored turn begins with it.
    hash: Fnv,
    form: Option<Stream>,
}

/// FNV-1a: compares the text sent so far with the stored turn without keeping the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(self, text: &str) -> Self {
        let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(text.bytes().fold(self.0, add))
    }
}

impl Streaming {
    /// Processes the next part of the original text; returns the text to send and its offset.
    fn show(&mut self, more: &str, ended: bool) -> (usize, String) {
        self.read += more.len();
        self.hash = self.hash.add(more);
        let shown = match &mut self.form {
            None => more.to_owned(),
            Some(form) => {
                let mut shown = form.push(more);
                if ended {
                    shown.push_str(&form.finish());
                }
                shown
            }
        };
        let offset = self.sent;
        self.sent += shown.len();
        (offset, shown)
    }
}

#[derive(Debug)]
struct Barrier {
    nonce: u64,
    seq: Seq,
}

impl Delivery {
    /// A new attachment: everything up to `delivered` is confirmed, everything up to `head` is in
    /// the log.
    pub fn new(session_id: SessionId, mode: Mode, delivered: Seq, head: Seq) -> Self {
        Self {
            session_id,
            mode,
            form: None,
            drain_until: head,
            sent: delivered,
            confirmed: delivered,
            turn_index: 0,
            streaming: None,
            translating: false,
            held: None,
            barriers: VecDeque::new(),
            barriers_sent: 0,
            explicit_ack: false,
            reads_0_9: false,
        }
    }

    /// The same for a surface that confirms by `TETHER_ACK` alone.
    pub fn acked_explicitly(self, explicit_ack: bool) -> Self {
        Self { explicit_ack, ..self }
    }

    /// The same for a surface that may look for the fields of wire version 0.9.
    pub fn for_0_9(self, reads_0_9: bool) -> Self {
        Self { reads_0_9, ..self }
    }

    /// The same for a surface that needs its text in another form.
    pub fn in_form(self, form: Option<Form>) -> Self {
        Self { form, ..self }
    }

    /// The position up to which whole turns were sent: read the log from here.
    pub fn sent(&self) -> Seq {
        self.sent
    }

    /// The next turn of the log, oldest first.
    pub fn logged(&mut self, mut turn: LoggedTurn) -> Vec<ServerFrame> {
        if turn.seq <= self.sent || self.held.is_some() {
            return Vec::new();
        }
        self.sent = turn.seq;
        let streamed = self.streaming.take().filter(|s| s.turn_id == turn.turn_id);
        if self.comes_whole(turn.seq) && (self.mode == Mode::Whole || streamed.is_none()) {
            let content = self.formed(std::mem::take(&mut turn.content));
            return vec![self.tether_turn(turn, content)];
        }
        // The text sent may come from another run than the stored turn: then the turn is restarted.
        // Two answers are never spliced (G18).
        let begins = |s: &Streaming| {
            let shown = turn.content.get(..s.read);
            shown.is_some_and(|shown| Fnv::new().add(shown) == s.hash)
        };
        let mut frames = Vec::with_capacity(2);
        if streamed.as_ref().is_some_and(|s| !begins(s)) {
            frames.push(self.restarted(turn.turn_id));
        }
        let mut streaming = streamed.filter(begins).unwrap_or_else(|| self.start(turn.turn_id, 0));
        let (offset, rest) = streaming.show(&turn.content[streaming.read..], true);
        if !rest.is_empty() || offset == 0 {
            frames.push(self.chunk(TurnFrame::of(&turn), offset, rest));
        }
        frames.push(self.complete(turn));
        frames
    }

    /// Whether a turn at that position is sent as one frame: it was pending when the surface
    /// attached, or the surface does not stream.
    fn comes_whole(&self, seq: Seq) -> bool {
        self.mode == Mode::Whole || seq <= self.drain_until
    }

    /// A user message of the log, for a surface that gets those. It comes before its turn and does
    /// not count as a Tether turn.
    pub fn question(&mut self, question: LoggedQuestion) -> Option<ServerFrame> {
        if question.seq <= self.sent || self.held.is_some() {
            return None;
        }
        self.sent = question.seq;
        Some(ServerFrame::UserTurn {
            turn_id: question.turn_id,
            session_id: self.session_id,
            content: question.content,
            seq: Some(question.seq),
            surface_id: None,
            author: question.author,
        })
    }

    /// How many bytes of that run's text were processed: continue reading from there.
    pub fn read_of(&self, turn_id: TurnId, attempt: u32) -> usize {
        let known = self.streaming.as_ref();
        let known = known.filter(|s| s.turn_id == turn_id && s.attempt == attempt);
        known.map_or(0, |s| s.read)
    }

    /// A running turn has more text. Call it only when the log before the turn has been read to
    /// its end: live text comes after everything older (SBP-L2-05).
    pub fn live(&mut self, live: LiveText<'_>) -> Vec<ServerFrame> {
        if self.mode == Mode::Whole || self.translating || live.seq <= self.sent {
            return Vec::new();
        }
        let read = self.read_of(live.turn_id, live.attempt);
        let more = read.checked_sub(live.from).and_then(|from| live.text.get(from..));
        let Some(rest) = more.filter(|rest| !rest.is_empty()) else { return Vec::new() };
        let known = self.streaming.take();
        let known = known.filter(|s| s.turn_id == live.turn_id && s.attempt == live.attempt);
        let mut frames = Vec::new();
        // Text of an earlier run was sent: in this attachment, or in an earlier one.
        if known.is_none() && live.attempt > 1 {
            frames.push(self.restarted(live.turn_id));
        }
        let mut streaming = known.unwrap_or_else(|| self.start(live.turn_id, live.attempt));
        let (offset, shown) = streaming.show(rest, false);
        self.streaming = Some(streaming);
        // A form may buffer text and produce nothing yet.
        if !shown.is_empty() {
            let LiveText { turn_id, seq, step, model, .. } = live;
            let step = TurnFrame { turn_id, seq, step, model: Some(model) };
            frames.push(self.chunk(step, offset, shown));
        }
        frames
    }

    fn start(&self, turn_id: TurnId, attempt: u32) -> Streaming {
        let form = self.form.as_ref().map(Form::stream);
        Streaming { turn_id, attempt, read: 0, sent: 0, hash: Fnv::new(), form }
    }

    /// The payload of a ping to send after the frames so far, if any of them is unconfirmed.
    pub fn barrier(&mut self) -> Option<[u8; 8]> {
        let covered = self.barriers.back().map_or(self.confirmed, |b| b.seq);
        if self.sent <= covered || self.barriers.len() >= MOST_BARRIERS {
            return None;
        }
        self.barriers_sent += 1;
        self.barriers.push_back(Barrier { nonce: self.barriers_sent, seq: self.sent });
        Some(self.barriers_sent.to_be_bytes())
    }

    /// A pong answers its barrier and all earlier ones. Returns the newly confirmed position.
    pub fn pong(&mut self, payload: &[u8]) -> Option<Seq> {
        let nonce = u64::from_be_bytes(payload.try_into().ok()?);
        // A pong without a matching barrier confirms nothing.
        let at = self.barriers.iter().position(|b| b.nonce == nonce)?;
        let seq = self.barriers.drain(..=at).next_back().map(|b| b.seq)?;
        if self.explicit_ack { None } else { self.confirm(seq) }
    }

    /// The surface acknowledges everything up to `seq`, limited to what was sent.
    pub fn ack(&mut self, seq: Seq) -> Option<Seq> {
        self.confirm(seq.min(self.sent))
    }

    fn confirm(&mut self, seq: Seq) -> Option<Seq> {
        if seq <= self.confirmed {
            return None;
        }
        self.confirmed = seq;
        Some(seq)
    }

    /// A whole text in the surface's form.
    fn formed(&self, text: String) -> String {
        match &self.form {
            Some(form) => form.whole(&text),
            None => text,
        }
    }
}
