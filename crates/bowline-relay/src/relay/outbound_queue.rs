//! A connection's bounded outbound queue, and the route of a client.
//!
//! Everything that needs one order happens under one short lock per connection: messages from the
//! paired peer, control messages of the relay, and changes of the route. So no frame of a replaced
//! daemon can follow the `session_paused` that announced its replacement, and no lock is shared by
//! all sessions.
//!
//! Invariants
//! - Only the relay's own messages, and bursts for a receiver that takes as much in a moment, can exceed the
//!   limits on queued and unwritten data.
//! - A closed queue accepts no more messages, and its senders see that it is closed.
//! - No lock of another queue is taken while one is held.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use bowline_sbrp::control::{ControlCode, Role};
use bowline_sbrp::frame::Frame;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::relay::{ClientRoute, CloseReason, ConnectionId, Route};

use super::buffer_pool;
use super::ws::encode;
use super::ws::mask::Masked;

/// The outbound queue of one connection, shared with its senders.
#[derive(Debug)]
pub(crate) struct OutboundQueue {
    pub(crate) connection: ConnectionId,
    pub(crate) role: Role,
    limits: QueueLimits,
    state: Mutex<QueueState>,
}

/// How much may be queued for a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    pub(crate) frames: usize,
    pub(crate) bytes: usize,
}

/// How much more than its limits a queue may hold for a receiver that has just taken as much: a burst of a
/// distant sender, which is under way when the receiver pauses.
const BURST: usize = 5;
/// The time in which it has to have taken as much.
const BURST_TIME: Duration = Duration::from_millis(250);

/// The relay's own messages that may be queued beyond the limit.
const OWN_MESSAGES: usize = 256;

/// Why another task closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseCause {
    /// It was sent a control code that closes the connection.
    Told(ControlCode),
    /// Slow consumer: its socket does not accept data fast enough (SBRP-RELAY-08).
    Backpressure,
    /// The same daemon has opened a new connection (SBRP-RELAY-18).
    Replaced,
    /// The relay shuts down (G16).
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
    /// Frames and bytes taken by the writer that may not be written yet.
    under_way: (usize, usize),
    taken: RecentlyTaken,
    /// The socket blocked at the last write.
    blocked: bool,
    open: bool,
    cause: Option<CloseCause>,
    /// The route of a client, as set by its daemon's table. A daemon's stays closed.
    route: ClientRoute,
    /// The outbound queue of the daemon in that route.
    daemon: Option<Arc<OutboundQueue>>,
    owner: Option<Waker>,
    /// Wakers of senders that wait for space.
    waiting: Vec<Waker>,
    /// How often waiting senders were woken; identifies the current set of `waiting`.
    drains: u64,
}

/// The result of queueing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    Queued,
    /// The queue is full; the sender has to wait.
    Full,
    /// The receiver is a slow consumer and is being closed.
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
                taken: RecentlyTaken::default(),
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

    /// Queues a message from the paired peer.
    #[inline(always)]
    pub(crate) fn push(&self, state: &mut QueueState, message: Masked<'_>) -> Pushed {
        let (frames, bytes) = state.under_way;
        let needs = encode::head_len(message.len()) + message.len();
        let QueueLimits { frames: most_frames, bytes: most_bytes } = self.limits;
        let full = (state.frames + frames >= most_frames
            || state.bytes.len() + bytes + needs > most_bytes)
            && !state.may_burst(self.limits, needs);
        // An empty queue accepts one message, however small the limits are.
        if full && state.frames + frames > 0 {
            // A daemon must not wait for one slow client, because all its other clients would wait,
            // too. A client whose writer has not run yet is not slow; one whose socket blocked is.
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

    /// Changes a client's route and queues the control message under the same lock: messages that
    /// its daemon sends from now on follow it.
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

    /// Closes the connection: its task writes what is queued, sends the reason, and closes.
    pub(crate) fn close(&self, cause: CloseCause) {
        let mut state = self.lock();
        state.end(cause);
        state.wake(None);
    }

    /// The receiver of this client's message. If the message is refused but the client is not
    /// closed, the client is notified under the same lock: otherwise `session_paused` could follow
    /// the `session_resumed` of a daemon that has just reconnected.
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

    /// Messages and bytes that are queued.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let state = self.lock();
        (state.frames + state.under_way.0, state.bytes.len() + state.under_way.1)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.lock().open
    }
}

/// How many bytes the receiver took in the last period, and in the present one.
#[derive(Debug, Clone, Copy, Default)]
struct RecentlyTaken {
    since: Option<Instant>,
    before: usize,
    now: usize,
}

impl RecentlyTaken {
    fn add(&mut self, bytes: usize, now: Instant) {
        self.turn(now);
        self.now += bytes;
    }

    fn turn(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let periods = now.duration_since(since).as_millis() / BURST_TIME.as_millis();
        if periods > 0 {
            self.before = if periods == 1 { self.now } else { 0 };
            (self.now, self.since) = (0, Some(now));
        }
    }

    fn bytes(&mut self, now: Instant) -> usize {
        self.turn(now);
        self.before.max(self.now)
    }
}

impl QueueState {
    /// Whether a message may be queued although the queue is full, because the receiver takes much: as much
    /// as it took within `BURST_TIME`, and at most `BURST` times the limits. Looked at only when it is full.
    #[cold]
    fn may_burst(&mut self, limits: QueueLimits, needs: usize) -> bool {
        let (frames, bytes) = self.under_way;
        let taken = self.taken.bytes(Instant::now()).min(BURST * limits.bytes);
        self.bytes.len() + bytes + needs <= taken && self.frames + frames < BURST * limits.frames
    }

    /// Whether the queue accepts messages from this connection. A daemon accepts every message that
    /// its clients' routes lead to it; a client accepts only the daemon of its route.
    pub(crate) fn takes_from(&self, sender: ConnectionId, receiver: Role) -> bool {
        self.open && (receiver == Role::Daemon || self.route.accepts(sender))
    }

    /// Appends a message of the relay itself.
    pub(crate) fn push_own(&mut self, message: &[u8]) {
        self.grow(message.len() + 4);
        encode::binary(message, &mut self.bytes);
        self.frames += 1;
    }

    /// Appends encoded WebSocket frames.
    pub(crate) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.frames += 1;
    }

    /// Wakes the owner's task. With `into`, the waker is collected there instead, so that the task
    /// runs once for a whole batch.
    pub(crate) fn wake(&mut self, into: Option<&mut Vec<Waker>>) {
        match (self.owner.take(), into) {
            (None, _) => {}
            (Some(owner), Some(wakes)) => wakes.push(owner),
            (Some(owner), None) => owner.wake(),
        }
    }

    /// Registers a sender that waits for space, unless it is registered since drain `known`.
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

    /// The first message takes a buffer from the pool; it is returned when all is written.
    #[inline]
    fn grow(&mut self, needs: usize) {
        if self.bytes.capacity() == 0 {
            self.bytes = buffer_pool::take(needs);
        }
    }

    // The methods below are for the connection's own task.

    pub(crate) fn cause(&self) -> Option<CloseCause> {
        self.cause
    }

    /// Frames that are queued and not taken by the writer.
    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    /// Swaps the queued bytes for an empty buffer; false if there are none. Bytes taken earlier
    /// have been written.
    pub(crate) fn take(&mut self, buffer: &mut Vec<u8>) -> bool {
        if self.under_way.1 > 0 {
            self.taken.add(self.under_way.1, Instant::now());
        }
        self.under_way = (self.frames, self.bytes.len());
        self.frames = 0;
        std::mem::swap(&mut self.bytes, buffer);
        self.under_way.1 > 0
    }

    /// There is space again: returns the wakers of the senders that wait.
    pub(crate) fn drained(&mut self) -> Vec<Waker> {
        self.blocked = false;
        if self.waiting.is_empty() {
            return Vec::new();
        }
        self.drains += 1;
        std::mem::take(&mut self.waiting)
    }

    /// The socket takes no more now; `left` bytes of those that the writer has are not written. Returns the
    /// wakers of the senders that wait: there is space again, or this receiver is too slow and they need
    /// not wait for it. To keep them until all is written would stop a daemon for one client.
    pub(crate) fn set_blocked(&mut self, left: usize) -> Vec<Waker> {
        let waiting = match self.blocked && left == self.under_way.1 {
            true => Vec::new(),
            false => self.drained(),
        };
        self.blocked = true;
        self.taken.add(self.under_way.1.saturating_sub(left), Instant::now());
        self.under_way.1 = left;
        waiting
    }

    /// Registers the task to wake when there is something to write; an empty buffer is returned to
    /// the pool.
    pub(crate) fn sleep(&mut self, owner: &Waker) {
        if self.bytes.is_empty() {
            buffer_pool::give(&mut self.bytes);
        }
        match &self.owner {
            Some(known) if known.will_wake(owner) => {}
            _ => self.owner = Some(owner.clone()),
        }
    }

    /// Closes the queue to all senders; returns the wakers of those that wait for space.
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
