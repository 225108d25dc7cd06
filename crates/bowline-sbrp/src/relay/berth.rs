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
use crate::control::{ControlCode, Role};
use crate::frame::{Signal, SignalKind};
use crate::id::SessionId;
use crate::impossible::Impossible;

/// One accepted connection. Numbers are never reused while the relay runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A daemon's connection was authenticated.
    DaemonArrived {
        link: Link,
        resumable: bool,
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
    Tell { link: Link, code: ControlCode, session: Option<SessionId> },
    Close { link: Link },
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To this connection, unchanged.
    To(Link),
    /// Nowhere; its sender is told why (SBRP-RELAY-19), and closed if the code says so.
    Refuse(ControlCode),
    /// Nowhere and nobody: its sender is not a current connection.
    Stale,
}

#[derive(Debug)]
pub struct Berth {
    grace: Duration,
    daemon: Option<Link>,
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
        Self { grace, daemon: None, pairs: BTreeMap::new() }
    }

    pub fn handle(&mut self, event: Event, now: Instant) -> Result<Vec<Action>, Impossible> {
        match event {
            Event::DaemonArrived { link, .. } if self.daemon == Some(link) => Ok(vec![]),
            Event::DaemonArrived { link, resumable } => {
                let mut actions = Vec::new();
                if let Some(old) = self.daemon {
                    actions.push(Action::Close { link: old });
                    actions.extend(self.each(PairEvent::DaemonLost, now)?);
                }
                self.daemon = Some(link);
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
        let refuse =
            |code, session| vec![Action::Tell { link, code, session }, Action::Close { link }];
        if self.pairs.contains_key(&session) {
            return refuse(ControlCode::Forbidden, None);
        }
        if self.daemon.is_none() {
            return refuse(ControlCode::DaemonOffline, Some(session));
        }
        self.pairs.insert(session, Moored { client: link, pair: Pair::new(self.grace) });
        vec![]
    }

    /// Sends everybody away. What their connections still say is then news of old ones.
    fn give_up(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (session, Moored { client: link, .. }) in std::mem::take(&mut self.pairs) {
            let (code, session) = (ControlCode::DaemonNotFound, Some(session));
            actions.extend([Action::Tell { link, code, session }, Action::Close { link }]);
        }
        if let Some(link) = self.daemon.take() {
            let code = ControlCode::Unauthorized;
            actions.extend([Action::Tell { link, code, session: None }, Action::Close { link }]);
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
        if pair.state() == PairState::Closed {
            self.pairs.remove(&session);
        }
        let session = Some(session);
        let actions = actions.into_iter().filter_map(|action| match action {
            PairAction::TellClient(code) => Some(Action::Tell { link: client, code, session }),
            PairAction::TellDaemon(code) => daemon.map(|link| Action::Tell { link, code, session }),
            PairAction::CloseClient => Some(Action::Close { link: client }),
        });
        Ok(actions.collect())
    }

    /// Where a frame of this session goes that came over this connection. For a client, `session`
    /// is what its frame's header says; `token` is what its token said (SBRP-RELAY-06).
    pub fn route_from_client(&self, link: Link, token: SessionId, session: SessionId) -> Route {
        if session != token {
            return Route::Refuse(ControlCode::SessionNotFound);
        }
        match (self.pairs.get(&session), self.daemon) {
            (Some(moored), _) if moored.client != link => Route::Stale,
            (None, _) => Route::Stale,
            (Some(moored), daemon) => match (moored.pair.state(), daemon) {
                (PairState::Paired, Some(daemon)) => Route::To(daemon),
                (PairState::Pending { .. }, _) => Route::Refuse(ControlCode::SessionPending),
                _ => Route::Refuse(ControlCode::SessionPaused),
            },
        }
    }

    /// The same for a daemon's frame. Before its ready there is no session to it.
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

impl Route {
    /// Whether the sender's connection ends with this refusal.
    pub fn closes(self, sender: Role) -> bool {
        matches!(self, Self::Refuse(code) if code.closes(sender))
    }
}

#[cfg(test)]
mod tests;
