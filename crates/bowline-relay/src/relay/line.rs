//! One connection as the others see it: a bounded queue, and the route of a client.
//!
//! Everything that has to happen in one order happens under one short lock per connection: what a
//! peer sends, what the relay says, and whether that peer may send at all. So nothing of a daemon
//! that was replaced can slip in behind the `session_paused` that announced it, and no lock is
//! shared by all sessions.
//!
//! Invariants
//! - What waits, and what is being written, never exceeds the room but by the relay's own words.
//! - A line that has ended takes nothing more, and says so to whoever tries.
//! - No lock of another line is taken while one is held.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bowline_sbrp::control::{ControlCode, Role};
use bowline_sbrp::frame::Frame;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::relay::{ClientRoute, CloseReason, Link, Route};

use super::spare;
use super::ws::encode;
use super::ws::mask::Masked;

/// One connection, for whoever sends to it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) link: Link,
    pub(crate) role: Role,
    room: Room,
    queue: Mutex<Queue>,
}

/// How much may wait for a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) frames: usize,
    pub(crate) bytes: usize,
}

/// Words of the relay that may wait beyond the room.
const OWN_WORDS: usize = 256;

/// Why a connection has to end, seen from outside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was told a code that closes.
    Told(ControlCode),
    /// It does not take what it is sent (SBRP-RELAY-08).
    Backpressure,
    /// The same daemon has connected anew (SBRP-RELAY-18).
    Replaced,
    /// The relay stops (G16).
    Restart,
}

impl From<CloseReason> for Ending {
    fn from(reason: CloseReason) -> Self {
        match reason {
            CloseReason::Told(code) => Self::Told(code),
            CloseReason::Replaced => Self::Replaced,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    bytes: Vec<u8>,
    frames: usize,
    /// Taken by the writer and not known to be written.
    under_way: (usize, usize),
    /// The socket took no more when it was last tried.
    blocked: bool,
    open: bool,
    ending: Option<Ending>,
    /// Of a client, as its daemon's table has handed it out. A daemon's stays closed.
    route: ClientRoute,
    /// The line of the daemon in that route.
    daemon: Option<Arc<Line>>,
    owner: Option<Waker>,
    /// Senders that wait for room.
    waiting: Vec<Waker>,
    /// How often there was room again.
    drains: u64,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    Queued,
    /// There is no room; the sender has to wait.
    Full,
    /// The receiver cannot keep up and is being closed.
    TooSlow,
}

impl Line {
    pub(crate) fn new(link: Link, role: Role, room: Room) -> Self {
        Self {
            link,
            role,
            room,
            queue: Mutex::new(Queue {
                bytes: Vec::new(),
                frames: 0,
                under_way: (0, 0),
                blocked: false,
                open: true,
                ending: None,
                route: ClientRoute::Closed,
                daemon: None,
                owner: None,
                waiting: Vec::new(),
                drains: 0,
            }),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message from the other end.
    #[inline(always)]
    pub(crate) fn push(&self, queue: &mut Queue, message: Masked<'_>) -> Pushed {
        let (frames, bytes) = queue.under_way;
        let needs = encode::head_len(message.len()) + message.len();
        let full = queue.frames + frames >= self.room.frames
            || queue.bytes.len() + bytes + needs > self.room.bytes;
        // One message always fits: whoever set the room smaller did not mean silence.
        if full && queue.frames + frames > 0 {
            // A daemon must not wait for one slow client, or all its others would, too. A writer
            // that is merely about to run is not slow.
            if self.role == Role::Client && queue.blocked {
                queue.end(Ending::Backpressure);
                return Pushed::TooSlow;
            }
            return Pushed::Full;
        }
        queue.grow(needs);
        encode::forward(message, &mut queue.bytes);
        queue.frames += 1;
        Pushed::Queued
    }

    /// Says something to the connection, behind all that waits for it.
    pub(crate) fn tell(&self, code: ControlCode, session: Option<SessionId>) {
        let mut queue = self.lock();
        self.tell_locked(&mut queue, code, session);
        queue.wake(None);
    }

    /// Changes a client's route, and tells it so under the same lock: what its daemon sends from
    /// here on comes after that.
    pub(crate) fn reroute(
        &self,
        route: ClientRoute,
        daemon: Option<Arc<Line>>,
        tell: Option<(ControlCode, SessionId)>,
    ) {
        let mut queue = self.lock();
        queue.route = route;
        queue.daemon = daemon;
        if let Some((code, session)) = tell {
            self.tell_locked(&mut queue, code, Some(session));
            queue.wake(None);
        }
    }

    fn tell_locked(&self, queue: &mut Queue, code: ControlCode, session: Option<SessionId>) {
        if !queue.open {
            return;
        }
        if queue.frames + queue.under_way.0 >= self.room.frames + OWN_WORDS {
            queue.end(Ending::Backpressure);
            return;
        }
        queue.say(&Frame::control(code, session).encode());
    }

    /// Ends the connection: it sends what waits, says why, and closes.
    pub(crate) fn close(&self, ending: Ending) {
        let mut queue = self.lock();
        queue.end(ending);
        queue.wake(None);
    }

    /// Where a message of this client goes. If it is refused and the client stays, the client is
    /// told so under the same lock: a moment later the daemon might be back, and its client would
    /// believe the older news.
    pub(crate) fn route(&self, token: SessionId, session: SessionId) -> Route<Arc<Line>> {
        let mut queue = self.lock();
        let route = queue.route.route(token, session);
        if let Route::Refuse(code) = route
            && !route.closes(self.role)
        {
            self.tell_locked(&mut queue, code, Some(session));
            queue.wake(None);
        }
        route.look_up(|_| queue.daemon.clone())
    }

    /// Messages and bytes that wait.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let queue = self.lock();
        (queue.frames + queue.under_way.0, queue.bytes.len() + queue.under_way.1)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.lock().open
    }
}

impl Queue {
    /// Whether it takes messages from this connection. A daemon takes what its clients' routes
    /// send it; a client's route says whose it accepts.
    pub(crate) fn takes_from(&self, sender: Link, receiver: Role) -> bool {
        self.open && (receiver == Role::Daemon || self.route.accepts(sender))
    }

    /// Appends a message of the relay's own.
    pub(crate) fn say(&mut self, message: &[u8]) {
        self.grow(message.len() + 4);
        encode::binary(message, &mut self.bytes);
        self.frames += 1;
    }

    /// Appends WebSocket frames as they are.
    pub(crate) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.frames += 1;
    }

    /// The owner's task is woken once it has something to do; `into` gathers such wakes so that a
    /// whole batch is there when it runs.
    pub(crate) fn wake(&mut self, into: Option<&mut Vec<Waker>>) {
        match (self.owner.take(), into) {
            (None, _) => {}
            (Some(owner), Some(wakes)) => wakes.push(owner),
            (Some(owner), None) => owner.wake(),
        }
    }

    /// Remembers a sender that waits for room, unless it is remembered since `known`.
    pub(crate) fn wait(&mut self, sender: &Waker, known: Option<u64>) -> u64 {
        if known != Some(self.drains) {
            self.waiting.push(sender.clone());
        }
        self.drains
    }

    fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
        self.open = false;
    }

    /// The first bytes take a sensible piece at once; buffers are given back when all is written.
    #[inline]
    fn grow(&mut self, needs: usize) {
        if self.bytes.capacity() == 0 {
            self.bytes = spare::take(needs);
        }
    }

    // What follows is for the connection itself.

    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// How many frames wait that are not being written.
    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    /// All that waits, in exchange for an empty buffer. What was taken before is written.
    pub(crate) fn take(&mut self, buffer: &mut Vec<u8>) -> bool {
        self.under_way = (self.frames, self.bytes.len());
        self.frames = 0;
        std::mem::swap(&mut self.bytes, buffer);
        self.under_way.1 > 0
    }

    /// Those who waited for room.
    pub(crate) fn drained(&mut self) -> Vec<Waker> {
        self.blocked = false;
        if self.waiting.is_empty() {
            return Vec::new();
        }
        self.drains += 1;
        std::mem::take(&mut self.waiting)
    }

    pub(crate) fn set_blocked(&mut self) {
        self.blocked = true;
    }

    /// The owner wants to know of the next thing to do; its empty buffer is given back.
    pub(crate) fn sleep(&mut self, owner: &Waker) {
        if self.bytes.is_empty() {
            spare::give(&mut self.bytes);
        }
        match &self.owner {
            Some(known) if known.will_wake(owner) => {}
            _ => self.owner = Some(owner.clone()),
        }
    }

    /// Nobody may send any more; those who wait for room learn it.
    pub(crate) fn shut(&mut self) -> Vec<Waker> {
        self.open = false;
        self.route = ClientRoute::Closed;
        self.daemon = None;
        self.drains += 1;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests;
