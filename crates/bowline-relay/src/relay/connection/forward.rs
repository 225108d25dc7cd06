//! Forwarding: from the read buffer directly into the receiver's outbound queue.
//!
//! This is the hot path of nearly every byte. The headers of a run of messages of one session are
//! checked, and each payload is unmasked once, into the buffer that the receiver's writer passes to
//! its socket. Only the lock of that receiver's queue is held.

use std::task::Waker;

use bowline_sbrp::control::Role;
use bowline_sbrp::frame::HeaderVerdict;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::relay::ConnectionId;

use crate::relay::outbound_queue::{OutboundQueue, Pushed};
use crate::relay::ws::decode::{Decoded, Decoder};

/// The most messages forwarded under one lock, so that other senders do not wait long.
const RUN: usize = 64;

/// The sending connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender<'a> {
    pub(super) connection: ConnectionId,
    pub(super) role: Role,
    pub(super) waker: &'a Waker,
    /// The receiver at which this sender's waker is registered, and its drain number at that time.
    pub(super) known: Option<(ConnectionId, u64)>,
}

/// The result of forwarding a run of messages.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// Bytes of input consumed.
    pub(super) used: usize,
    pub(super) frames: usize,
    /// Bytes of message payload forwarded.
    pub(super) bytes: usize,
    pub(super) stop: Stop,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The next input is not a message of this run, or the limit was reached.
    #[default]
    Done,
    /// The receiver's queue is full; it wakes the sender when there is space.
    Full { receiver: ConnectionId, drains: u64 },
    /// The receiver does not accept messages from this sender now.
    Rejected,
}

/// Forwards the messages of `session` at the start of the input, at most `most` of them.
pub(super) fn run(
    sender: Sender<'_>,
    session: SessionId,
    to: &OutboundQueue,
    input: &[u8],
    most: usize,
    wakes: &mut Vec<Waker>,
) -> Run {
    let mut run = Run::default();
    // A run has only unfragmented messages, so no decoder state is needed between frames.
    let decoder = Decoder::default();
    let mut state = to.lock();
    if !state.takes_from(sender.connection, to.role) {
        run.stop = Stop::Rejected;
        return run;
    }
    while run.frames < most.min(RUN) {
        // An invalid message ends the run; it is refused when it is the first of the input.
        let Ok(Decoded::Message { message, used }) = decoder.look(&input[run.used..]) else {
            break;
        };
        let (start, known) = message.start();
        match HeaderVerdict::at(sender.role, &start[..known], message.len()) {
            Ok(HeaderVerdict::Forward { session: named }) if named == session => {}
            _ => break,
        }
        match to.push(&mut state, message) {
            Pushed::Queued => {}
            Pushed::Full => {
                let known = sender.known.filter(|(connection, _)| *connection == to.connection);
                let drains = state.wait(sender.waker, known.map(|(_, drains)| drains));
                run.stop = Stop::Full { receiver: to.connection, drains };
                break;
            }
            Pushed::TooSlow => {
                run.stop = Stop::Rejected;
                break;
            }
        }
        run.used += used;
        run.frames += 1;
        run.bytes += message.len();
    }
    state.wake(Some(wakes));
    run
}
