//! Routes of frames, as small values that a relay stores beside its connections.
//!
//! Separate from the table of pairs, because forwarding a frame must not wait for the table's lock:
//! the table hands out a [`ClientRoute`] with every change, and the relay stores it under the lock
//! of that client's queue. A daemon's connection caches the receivers of its sessions in a
//! [`RouteCache`]. Both kinds of frames are then routed without the table, by the code in this
//! file.
//!
//! Invariants
//! - A client's route equals the table's, except while the table is being changed.
//! - A cached receiver may be out of date; it then refuses the frame, and the table is queried.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::control::{ControlCode, Role};
use crate::id::SessionId;

/// One accepted connection. Ids are never reused while the relay runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// The routing decision for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route<T = ConnectionId> {
    /// Forward to this connection, unchanged.
    To(T),
    /// Do not forward; send this code to the sender (SBRP-RELAY-19), and close it if the code
    /// requires that.
    Refuse(ControlCode),
    /// Drop silently: the sender is not a current connection.
    Stale,
}

impl<T> Route<T> {
    /// Whether the relay closes the sender's connection after this refusal.
    pub fn closes(&self, sender: Role) -> bool {
        matches!(self, Self::Refuse(code) if code.closes(sender))
    }

    /// Resolves the receiver with `find`; a receiver that is not found has disconnected: `Stale`.
    pub fn look_up<U>(self, find: impl FnOnce(T) -> Option<U>) -> Route<U> {
        match self {
            Self::To(to) => find(to).map_or(Route::Stale, Route::To),
            Self::Refuse(code) => Route::Refuse(code),
            Self::Stale => Route::Stale,
        }
    }
}

/// The route of one client's session: where its frames go, and from which daemon it accepts frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientRoute {
    /// Frames pass between the client and this connection of its daemon.
    Paired(ConnectionId),
    /// The daemon is disconnected.
    Paused,
    /// The daemon reconnected and has not signalled yet whether it can resume the session.
    Pending,
    /// There is no session: not established yet, ended, or refused.
    #[default]
    Closed,
}

impl ClientRoute {
    /// Routes a frame of the client. `token` is the session that its token names, `session` the one
    /// in the header of the frame (SBRP-RELAY-06).
    #[inline]
    pub fn route(self, token: SessionId, session: SessionId) -> Route {
        if session != token {
            return Route::Refuse(ControlCode::SessionNotFound);
        }
        match self {
            Self::Paired(daemon) => Route::To(daemon),
            Self::Paused => Route::Refuse(ControlCode::SessionPaused),
            Self::Pending => Route::Refuse(ControlCode::SessionPending),
            Self::Closed => Route::Stale,
        }
    }

    /// Whether the client accepts a frame from this connection: only from the daemon connection it
    /// is currently paired with (SBRP-RELAY-18).
    #[inline]
    pub fn accepts(self, daemon: ConnectionId) -> bool {
        self == Self::Paired(daemon)
    }

    /// The daemon connection that the client is paired with.
    pub fn daemon(self) -> Option<ConnectionId> {
        match self {
            Self::Paired(daemon) => Some(daemon),
            Self::Paused | Self::Pending | Self::Closed => None,
        }
    }
}

/// What to do with a frame that its receiver did not accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// Hold the frame: its sender is about to get a control code, or to be closed.
    Wait,
    /// The cached receiver may be out of date: remove it and route the frame again.
    RouteAgain,
    /// Drop the frame: the receiver is closing, and both endpoints are about to be told.
    Discard,
}

impl Rejected {
    /// Depends on the sender and on whether this was the first attempt. A daemon's frame must not
    /// wait, because it would block the frames of the daemon's other sessions.
    pub fn after(sender: Role, first: bool) -> Self {
        match (sender, first) {
            (Role::Client, _) => Self::Wait,
            (Role::Daemon, true) => Self::RouteAgain,
            (Role::Daemon, false) => Self::Discard,
        }
    }
}

/// The cached receivers of a daemon's sessions.
#[derive(Debug)]
pub struct RouteCache<T> {
    receivers: HashMap<SessionId, T, BuildHasherDefault<Mix>>,
    /// At this size, disconnected receivers are removed before the next insert.
    tidy_at: usize,
}

impl<T> RouteCache<T> {
    const TIDY_AT_LEAST: usize = 64;

    /// What was found for this session before.
    #[inline]
    pub fn find(&self, session: SessionId) -> Option<&T> {
        self.receivers.get(&session)
    }

    /// Caches a receiver. `is_open` tells which of the other receivers are still connected.
    pub fn learn(&mut self, session: SessionId, to: T, is_open: impl Fn(&T) -> bool) {
        if self.receivers.len() >= self.tidy_at.max(Self::TIDY_AT_LEAST) {
            self.receivers.retain(|_, to| is_open(to));
            self.tidy_at = self.receivers.len() * 2;
        }
        self.receivers.insert(session, to);
    }

    /// The next look-up asks again.
    pub fn forget(&mut self, session: SessionId) {
        self.receivers.remove(&session);
    }
}

impl<T> Default for RouteCache<T> {
    fn default() -> Self {
        Self { receivers: HashMap::default(), tidy_at: 0 }
    }
}

/// A hasher for session ids: they are random and come from signed tokens, so one multiplication
/// distributes them well enough.
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

    fn sid(id: u64) -> SessionId {
        SessionId::from_wire(id).unwrap()
    }

    #[test]
    fn sbrp_relay_06_a_foreign_session_is_refused_however_the_own_one_stands() {
        use ClientRoute::*;
        for route in [Paired(ConnectionId(9)), Paused, Pending, Closed] {
            let refused = route.route(sid(1), sid(2));
            assert_eq!(refused, Route::Refuse(ControlCode::SessionNotFound));
            assert!(refused.closes(Role::Client));
        }
    }

    #[test]
    fn sbrp_relay_18_a_client_accepts_from_the_daemon_it_is_paired_with() {
        assert!(ClientRoute::Paired(ConnectionId(9)).accepts(ConnectionId(9)));
        assert!(!ClientRoute::Paired(ConnectionId(9)).accepts(ConnectionId(8)));
        for route in [ClientRoute::Paused, ClientRoute::Pending, ClientRoute::Closed] {
            assert!(!route.accepts(ConnectionId(9)));
        }
    }

    #[test]
    fn a_clients_frame_waits_and_a_daemons_is_routed_once_more() {
        for first in [true, false] {
            assert_eq!(Rejected::after(Role::Client, first), Rejected::Wait);
        }
        assert_eq!(Rejected::after(Role::Daemon, true), Rejected::RouteAgain);
        assert_eq!(Rejected::after(Role::Daemon, false), Rejected::Discard);
    }

    #[test]
    fn a_receiver_that_left_makes_a_route_stale() {
        assert_eq!(
            Route::To(ConnectionId(1)).look_up(|connection| Some(connection.0)),
            Route::To(1)
        );
        assert_eq!(Route::To(ConnectionId(1)).look_up(|_| None::<u64>), Route::Stale);
        let refuse = Route::<ConnectionId>::Refuse(ControlCode::SessionPaused);
        assert_eq!(
            refuse.look_up(|connection| Some(connection.0)),
            Route::Refuse(ControlCode::SessionPaused)
        );
    }

    #[test]
    fn routes_of_closed_connections_do_not_pile_up() {
        let mut cache = RouteCache::default();
        let is_open = |id: &u64| *id == 1;
        for id in 1..10_000 {
            cache.learn(sid(id), id, is_open);
            assert!(cache.receivers.len() <= 130);
        }
        assert_eq!(cache.find(sid(1)), Some(&1));
        cache.forget(sid(1));
        assert_eq!(cache.find(sid(1)), None);
    }
}
