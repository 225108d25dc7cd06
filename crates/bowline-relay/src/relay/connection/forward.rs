//! Forwarding: from the read buffer straight into the receiver's queue.
//!
//! The path of nearly every byte. A run of messages of one session is checked by header and
//! unmasked once, into the buffer that the receiver's writer hands to its socket, under the lock of
//! that receiver's queue alone.

use std::task::Waker;

use bowline_sbrp::control::Role;
use bowline_sbrp::frame::HeaderVerdict;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::relay::ConnectionId;

use crate::relay::outbound_queue::{OutboundQueue, Pushed};
use crate::relay::ws::decode::{Decoded, Decoder};

/// Messages forwarded under one lock, at most: its other users must not wait long.
const RUN: usize = 64;

/// The sending connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender<'a> {
    pub(super) connection: ConnectionId,
    pub(super) role: Role,
    pub(super) waker: &'a Waker,
    /// The receiver that remembers the sender as one that waits, and since when.
    pub(super) known: Option<(ConnectionId, u64)>,
}

/// What became of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// Bytes of input.
    pub(super) used: usize,
    pub(super) frames: usize,
    /// Bytes of messages.
    pub(super) bytes: usize,
    pub(super) stop: Stop,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Something else comes next.
    #[default]
    Done,
    /// The receiver has no room, and wakes the sender when it has.
    Full { receiver: ConnectionId, drains: u64 },
    /// The receiver takes nothing from this sender now.
    Rejected,
}

/// Passes on the messages of `session` at the beginning of the input, `most` at most.
pub(super) fn run(
    sender: Sender<'_>,
    session: SessionId,
    to: &OutboundQueue,
    input: &[u8],
    most: usize,
    wakes: &mut Vec<Waker>,
) -> Run {
    let mut run = Run::default();
    // Parts of messages do not come here, so nothing has to be remembered between frames.
    let decoder = Decoder::default();
    let mut state = to.lock();
    if !state.takes_from(sender.connection, to.role) {
        run.stop = Stop::Rejected;
        return run;
    }
    while run.frames < most.min(RUN) {
        // A message that breaks a rule ends the run; it is refused when it comes first.
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
