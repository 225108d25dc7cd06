//! One connection as the others see it: a bounded queue, and the route of a client.
//!
//! Everything that has to happen in one order happens under one short lock per connection: what
//! the other end sends, what the relay tells, and whether the other end may send at all. So no frame
//! of a daemon that was replaced can come behind the `session_paused` that announced it, and no
//! lock is shared by all sessions.
//!
//! Invariants
//! - What is queued or being written exceeds the limits by messages of the relay itself only.
//! - A queue that was closed takes nothing more, and tells the sender so.
//! - No lock of another queue is taken while one is held.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bowline_sbrp::control::{ControlCode, Role};
use bowline_sbrp::frame::Frame;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::relay::{ClientRoute, CloseReason, ConnectionId, Route};

use super::buffer_pool;
use super::ws::encode;
use super::ws::mask::Masked;

/// The queue of one connection, for those who send to it.
#[derive(Debug)]
pub(crate) struct OutboundQueue {
    pub(crate) connection: ConnectionId,
    pub(crate) role: Role,
    limits: QueueLimits,
    state: Mutex<QueueState>,
}

/// How much may wait for a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    pub(crate) frames: usize,
    pub(crate) bytes: usize,
}

/// Messages of the relay itself that may be queued beyond the limit.
const OWN_MESSAGES: usize = 256;

/// Why another task closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseCause {
    /// It was told a code that closes.
    Told(ControlCode),
    /// It does not take what it is sent (SBRP-RELAY-08).
    Backpressure,
    /// The same daemon has connected anew (SBRP-RELAY-18).
    Replaced,
    /// The relay stops (G16).
    Restart,
}

impl From<CloseReason> for CloseCause {
    fn from(reason: CloseReason) -> Self {
        match reason {
            CloseReason::Told(code) => Self::Told(code),
            CloseReason::Replaced => Self::Replaced,
        }
    }
}

#[derive(Debug)]
pub(crate) struct QueueState {
    bytes: Vec<u8>,
    frames: usize,
    /// Taken by the writer and not known to be written.
    under_way: (usize, usize),
    /// The socket took no more when it was last tried.
    blocked: bool,
    open: bool,
    cause: Option<CloseCause>,
    /// Of a client, as its daemon's table has handed it out. A daemon's stays closed.
    route: ClientRoute,
    /// The queue of the daemon in that route.
    daemon: Option<Arc<OutboundQueue>>,
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

impl OutboundQueue {
    pub(crate) fn new(connection: ConnectionId, role: Role, limits: QueueLimits) -> Self {
        Self {
            connection,
            role,
            limits,
            state: Mutex::new(QueueState {
                bytes: Vec::new(),
                frames: 0,
                under_way: (0, 0),
                blocked: false,
                open: true,
                cause: None,
                route: ClientRoute::Closed,
                daemon: None,
                owner: None,
                waiting: Vec::new(),
                drains: 0,
            }),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message from the other end.
    #[inline(always)]
    pub(crate) fn push(&self, state: &mut QueueState, message: Masked<'_>) -> Pushed {
        let (frames, bytes) = state.under_way;
        let needs = encode::head_len(message.len()) + message.len();
        let full = state.frames + frames >= self.limits.frames
            || state.bytes.len() + bytes + needs > self.limits.bytes;
        // One message always fits, however small the limits are.
        if full && state.frames + frames > 0 {
            // A daemon must not wait for one slow client, or all its others would, too. A writer
            // that is merely about to run is not slow.
            if self.role == Role::Client && state.blocked {
                state.end(CloseCause::Backpressure);
                return Pushed::TooSlow;
            }
            return Pushed::Full;
        }
        state.grow(needs);
        encode::forward(message, &mut state.bytes);
        state.frames += 1;
        Pushed::Queued
    }

    /// Queues a control message for the connection.
    pub(crate) fn tell(&self, code: ControlCode, session: Option<SessionId>) {
        let mut state = self.lock();
        self.tell_locked(&mut state, code, session);
        state.wake(None);
    }

    /// Changes a client's route, and tells it so under the same lock: what its daemon sends from
    /// here on comes after that.
    pub(crate) fn reroute(
        &self,
        route: ClientRoute,
        daemon: Option<Arc<OutboundQueue>>,
        tell: Option<(ControlCode, SessionId)>,
    ) {
        let mut state = self.lock();
        state.route = route;
        state.daemon = daemon;
        if let Some((code, session)) = tell {
            self.tell_locked(&mut state, code, Some(session));
            state.wake(None);
        }
    }

    fn tell_locked(&self, state: &mut QueueState, code: ControlCode, session: Option<SessionId>) {
        if !state.open {
            return;
        }
        if state.frames + state.under_way.0 >= self.limits.frames + OWN_MESSAGES {
            state.end(CloseCause::Backpressure);
            return;
        }
        state.push_own(&Frame::control(code, session).encode());
    }

    /// Ends the connection: it sends what waits, says why, and closes.
    pub(crate) fn close(&self, cause: CloseCause) {
        let mut state = self.lock();
        state.end(cause);
        state.wake(None);
    }

    /// Where a message of this client goes. If it is refused and the client stays, the client is
    /// told so under the same lock: otherwise `session_paused` could come after the
    /// `session_resumed` of a daemon that has just come back.
    pub(crate) fn route(&self, token: SessionId, session: SessionId) -> Route<Arc<OutboundQueue>> {
        let mut state = self.lock();
        let route = state.route.route(token, session);
        if let Route::Refuse(code) = route
            && !route.closes(self.role)
        {
            self.tell_locked(&mut state, code, Some(session));
            state.wake(None);
        }
        route.look_up(|_| state.daemon.clone())
    }

    /// Messages and bytes that wait.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let state = self.lock();
        (state.frames + state.under_way.0, state.bytes.len() + state.under_way.1)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.lock().open
    }
}

impl QueueState {
    /// Whether it takes messages from this connection. A daemon takes what its clients' routes
    /// send it; a client's route says whose it accepts.
    pub(crate) fn takes_from(&self, sender: ConnectionId, receiver: Role) -> bool {
        self.open && (receiver == Role::Daemon || self.route.accepts(sender))
    }

    /// Appends a message of the relay's own.
    pub(crate) fn push_own(&mut self, message: &[u8]) {
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

    fn end(&mut self, cause: CloseCause) {
        self.cause.get_or_insert(cause);
        self.open = false;
    }

    /// The first message takes a buffer from the pool; it is given back when all is written.
    #[inline]
    fn grow(&mut self, needs: usize) {
        if self.bytes.capacity() == 0 {
            self.bytes = buffer_pool::take(needs);
        }
    }

    // What follows is for the connection's own task.

    pub(crate) fn cause(&self) -> Option<CloseCause> {
        self.cause
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

    /// Remembers whom to wake when there is something to write; an empty buffer is given back.
    pub(crate) fn sleep(&mut self, owner: &Waker) {
        if self.bytes.is_empty() {
            buffer_pool::give(&mut self.bytes);
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
