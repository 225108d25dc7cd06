//! Passing messages on: from where they were read straight into the receiver's queue.
//!
//! The path of nearly every byte. A run of messages of one session is judged by header, unmasked
//! once, into the buffer that the receiver's writer hands to its socket, under one lock of that
//! receiver alone.

use std::task::Waker;

use bowline_sbrp::control::Role;
use bowline_sbrp::frame::Glance;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::relay::Link;

use crate::relay::line::{Line, Pushed};
use crate::relay::ws::decode::{Decoder, Next};

/// Messages under one lock: its other users must not wait long.
const RUN: usize = 64;

/// Who sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender<'a> {
    pub(super) link: Link,
    pub(super) role: Role,
    pub(super) waker: &'a Waker,
    /// The receiver that remembers the sender as one that waits, and since when.
    pub(super) known: Option<(Link, u64)>,
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
    Full { receiver: Link, drains: u64 },
    /// The receiver takes nothing from this sender now.
    Rejected,
}

/// Passes on the messages of `session` at the beginning of the input, `most` at most.
pub(super) fn run(
    sender: Sender<'_>,
    session: SessionId,
    to: &Line,
    input: &[u8],
    most: usize,
    wakes: &mut Vec<Waker>,
) -> Run {
    let mut run = Run::default();
    // Parts of messages do not come here, so nothing has to be remembered between frames.
    let decoder = Decoder::default();
    let mut queue = to.lock();
    if !queue.takes_from(sender.link, to.role) {
        run.stop = Stop::Rejected;
        return run;
    }
    while run.frames < most.min(RUN) {
        // What is wrong here is found, and answered, when it is its turn.
        let Ok(Next::Message { message, used }) = decoder.look(&input[run.used..]) else { break };
        let (start, known) = message.start();
        match Glance::at(sender.role, &start[..known], message.len()) {
            Ok(Glance::Forward { session: named }) if named == session => {}
            _ => break,
        }
        match to.push(&mut queue, message) {
            Pushed::Queued => {}
            Pushed::Full => {
                let known = sender.known.filter(|(link, _)| *link == to.link);
                let drains = queue.wait(sender.waker, known.map(|(_, drains)| drains));
                run.stop = Stop::Full { receiver: to.link, drains };
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
    queue.wake(Some(wakes));
    run
}
