//! One daemon id: its connection, if it has one, and the sessions paired with it.
//!
//! Apart from the pair, because a daemon's coming and going concerns all its sessions at once,
//! and because only here is it known which connection is the current one.
//!
//! Invariants
//! - One daemon connection: a newer one replaces the older when it arrives (SBRP-RELAY-18).
//! - News from a connection that is not the current one change nothing.
//! - A session id in use stays with the client that has it (SBRP-RELAY-20).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::pair::{Pair, PairAction, PairEvent, PairState};
use super::route::{ClientRoute, Link, Route};
use crate::control::ControlCode;
use crate::frame::{Signal, SignalKind};
use crate::id::SessionId;
use crate::impossible::Impossible;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A daemon's connection was authenticated; it may carry so many sessions.
    DaemonArrived {
        link: Link,
        resumable: bool,
        max_sessions: u64,
    },
    DaemonLeft {
        link: Link,
    },
    /// A client's connection was authenticated; its token names the session.
    ClientArrived {
        link: Link,
        session: SessionId,
    },
    ClientLeft {
        link: Link,
        session: SessionId,
    },
    Signalled {
        link: Link,
        session: SessionId,
        signal: Signal,
    },
    /// The daemon was taken out of force: nobody is served here any more.
    Revoked,
    Tick,
}

/// To be carried out in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client's route changes, and the client is told of it. Both take effect at once: nothing
    /// may be queued for the client, or taken from it, between the two.
    Reroute {
        link: Link,
        route: ClientRoute,
        tell: Option<(ControlCode, SessionId)>,
    },
    Tell {
        link: Link,
        code: ControlCode,
        session: Option<SessionId>,
    },
    Close {
        link: Link,
        reason: CloseReason,
    },
}

/// Why the table ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// It was told this code, which closes.
    Told(ControlCode),
    /// The same daemon has connected anew (SBRP-RELAY-18).
    Replaced,
}

#[derive(Debug)]
pub struct Berth {
    grace: Duration,
    daemon: Option<Link>,
    /// How many sessions the daemon may carry.
    max_sessions: u64,
    pairs: BTreeMap<SessionId, Moored>,
}

/// A pair and the connection of its client.
#[derive(Debug)]
struct Moored {
    client: Link,
    pair: Pair,
}

impl Berth {
    pub fn new(grace: Duration) -> Self {
        Self { grace, daemon: None, max_sessions: 0, pairs: BTreeMap::new() }
    }

    pub fn handle(&mut self, event: Event, now: Instant) -> Result<Vec<Action>, Impossible> {
        match event {
            Event::DaemonArrived { link, .. } if self.daemon == Some(link) => Ok(vec![]),
            Event::DaemonArrived { link, resumable, max_sessions } => {
                let mut actions = Vec::new();
                if let Some(old) = self.daemon {
                    actions.push(Action::Close { link: old, reason: CloseReason::Replaced });
                    actions.extend(self.each(PairEvent::DaemonLost, now)?);
                }
                self.daemon = Some(link);
                self.max_sessions = max_sessions;
                actions.extend(self.each(PairEvent::DaemonReturned { resumable }, now)?);
                Ok(actions)
            }
            Event::DaemonLeft { link } if self.daemon == Some(link) => {
                self.daemon = None;
                self.each(PairEvent::DaemonLost, now)
            }
            Event::ClientArrived { link, session } => Ok(self.pair(link, session)),
            Event::ClientLeft { link, session } if self.client(session) == Some(link) => {
                self.one(session, PairEvent::ClientGone, now)
            }
            Event::Signalled { link, session, signal } if self.daemon == Some(link) => {
                if self.pairs.contains_key(&session) {
                    let event = match signal.kind() {
                        SignalKind::Ready => PairEvent::DaemonReady,
                        SignalKind::Close => PairEvent::DaemonClosed,
                    };
                    self.one(session, event, now)
                } else {
                    let code = ControlCode::SessionNotFound;
                    Ok(vec![Action::Tell { link, code, session: Some(session) }])
                }
            }
            Event::Revoked => Ok(self.give_up()),
            Event::Tick => self.each(PairEvent::Tick, now),
            Event::DaemonLeft { .. } | Event::ClientLeft { .. } | Event::Signalled { .. } => {
                Ok(vec![])
            }
        }
    }

    /// A client's arrival: paired, or told why not and closed.
    fn pair(&mut self, link: Link, session: SessionId) -> Vec<Action> {
        let refuse = |code, session| {
            let reason = CloseReason::Told(code);
            vec![Action::Tell { link, code, session }, Action::Close { link, reason }]
        };
        if self.pairs.contains_key(&session) {
            return refuse(ControlCode::Forbidden, None);
        }
        let Some(daemon) = self.daemon else {
            return refuse(ControlCode::DaemonOffline, Some(session));
        };
        if self.pairs.len() as u64 >= self.max_sessions {
            return refuse(ControlCode::Forbidden, None);
        }
        self.pairs.insert(session, Moored { client: link, pair: Pair::new(self.grace) });
        vec![Action::Reroute { link, route: ClientRoute::Paired(daemon), tell: None }]
    }

    /// Closes everybody. Events of their connections that still come are those of old ones.
    fn give_up(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (session, Moored { client: link, .. }) in std::mem::take(&mut self.pairs) {
            let code = ControlCode::DaemonNotFound;
            let (route, tell) = (ClientRoute::Closed, Some((code, session)));
            let reason = CloseReason::Told(code);
            actions.extend([Action::Reroute { link, route, tell }, Action::Close { link, reason }]);
        }
        if let Some(link) = self.daemon.take() {
            let code = ControlCode::Unauthorized;
            let reason = CloseReason::Told(code);
            actions.extend([
                Action::Tell { link, code, session: None },
                Action::Close { link, reason },
            ]);
        }
        actions
    }

    fn each(&mut self, event: PairEvent, now: Instant) -> Result<Vec<Action>, Impossible> {
        let sessions: Vec<_> = self.pairs.keys().copied().collect();
        let mut actions = Vec::new();
        for session in sessions {
            actions.extend(self.one(session, event, now)?);
        }
        Ok(actions)
    }

    fn one(
        &mut self,
        session: SessionId,
        event: PairEvent,
        now: Instant,
    ) -> Result<Vec<Action>, Impossible> {
        let Some(Moored { client, pair }) = self.pairs.get_mut(&session) else {
            return Ok(vec![]);
        };
        let (client, daemon) = (*client, self.daemon);
        let actions = pair.handle(event, now)?;
        let route = route(pair, daemon);
        if pair.state() == PairState::Closed {
            self.pairs.remove(&session);
        }
        let actions = actions.into_iter().filter_map(|action| match action {
            PairAction::TellClient(code) => {
                Some(Action::Reroute { link: client, route, tell: Some((code, session)) })
            }
            PairAction::TellDaemon(code) => {
                daemon.map(|link| Action::Tell { link, code, session: Some(session) })
            }
            PairAction::CloseClient(code) => {
                Some(Action::Close { link: client, reason: CloseReason::Told(code) })
            }
        });
        Ok(actions.collect())
    }

    /// The route of a client's connection: what the actions so far have told its relay.
    pub fn client_route(&self, link: Link, session: SessionId) -> ClientRoute {
        match self.pairs.get(&session) {
            Some(moored) if moored.client == link => route(&moored.pair, self.daemon),
            _ => ClientRoute::Closed,
        }
    }

    /// Where a daemon's frame goes, for a connection that does not know or no longer knows it.
    /// Before its ready there is no session to it.
    pub fn route_from_daemon(&self, link: Link, session: SessionId) -> Route {
        if self.daemon != Some(link) {
            return Route::Stale;
        }
        match self.pairs.get(&session) {
            Some(moored) if moored.pair.state() == PairState::Paired => Route::To(moored.client),
            _ => Route::Refuse(ControlCode::SessionNotFound),
        }
    }

    /// When `Tick` is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.pairs.values().filter_map(|moored| moored.pair.deadline()).min()
    }

    /// How a session stands.
    pub fn state(&self, session: SessionId) -> Option<PairState> {
        self.pairs.get(&session).map(|moored| moored.pair.state())
    }

    /// The daemon's connection, if it has one.
    pub fn daemon(&self) -> Option<Link> {
        self.daemon
    }

    /// How each of its sessions stands.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (SessionId, PairState)> {
        self.pairs.iter().map(|(session, moored)| (*session, moored.pair.state()))
    }

    /// Whether nobody is left to keep it for.
    pub fn is_empty(&self) -> bool {
        self.daemon.is_none() && self.pairs.is_empty()
    }

    fn client(&self, session: SessionId) -> Option<Link> {
        self.pairs.get(&session).map(|moored| moored.client)
    }
}

/// What the state of a pair means for frames.
fn route(pair: &Pair, daemon: Option<Link>) -> ClientRoute {
    match (pair.state(), daemon) {
        (PairState::Paired, Some(daemon)) => ClientRoute::Paired(daemon),
        (PairState::Paired, None) | (PairState::Paused { .. }, _) => ClientRoute::Paused,
        (PairState::Pending { .. }, _) => ClientRoute::Pending,
        (PairState::Closed, _) => ClientRoute::Closed,
    }
}

#[cfg(test)]
mod tests;
