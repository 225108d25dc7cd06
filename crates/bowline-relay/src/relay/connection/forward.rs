//! Passing messages on: from where they were read straight into the receiver's queue.
//!
//! The path of nearly every byte. A run of messages of one session is judged by header, unmasked
//! once, into the buffer that the receiver's writer hands to its socket, under one lock of that
//! receiver alone.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
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
    /// The receiver takes nothing from this sender.
    Gone,
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
        run.stop = Stop::Gone;
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
                run.stop = Stop::Gone;
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

/// Where a daemon's sessions are, as far as it has sent to them. Asked without any lock; what is
/// out of date shows when it is used.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    lines: HashMap<SessionId, Arc<Line>, BuildHasherDefault<Mix>>,
    tidy_at: usize,
}

impl Routes {
    pub(super) fn find(&self, session: SessionId) -> Option<&Arc<Line>> {
        self.lines.get(&session)
    }

    pub(super) fn learn(&mut self, session: SessionId, line: Arc<Line>) {
        if self.lines.len() >= self.tidy_at.max(64) {
            self.lines.retain(|_, line| line.is_open());
            self.tidy_at = self.lines.len() * 2;
        }
        self.lines.insert(session, line);
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.lines.remove(&session);
    }
}

/// Session ids are random and from tokens: one multiplication spreads them well enough.
#[derive(Debug, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::line::Room;

    fn line(link: u64) -> Arc<Line> {
        Arc::new(Line::new(Link(link), Role::Client, Room { frames: 8, bytes: 8 }))
    }

    fn sid(id: u64) -> SessionId {
        SessionId::from_wire(id).unwrap()
    }

    #[test]
    fn routes_of_closed_lines_do_not_pile_up() {
        let mut routes = Routes::default();
        let open = line(1);
        routes.learn(sid(1), Arc::clone(&open));
        for id in 2..10_000 {
            let gone = line(id);
            gone.lock().shut();
            routes.learn(sid(id), gone);
            assert!(routes.lines.len() <= 130);
        }
        assert!(routes.find(sid(1)).is_some());
        routes.forget(sid(1));
        assert!(routes.find(sid(1)).is_none());
    }
}
