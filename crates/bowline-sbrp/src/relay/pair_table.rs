//! One daemon id: its connection, if it has one, and the sessions paired with it.
//!
//! Separate from the pair, because a daemon's connect and disconnect affect all its sessions at
//! once, and because only the table knows which connection is current.
//!
//! Invariants
//! - One daemon connection: a newer one replaces the older one when it is accepted (SBRP-RELAY-18),
//!   unless its token is of an older epoch: then another process, or another relay, has taken over.
//! - No client is paired with a presence of an older epoch than its own token names.
//! - Events of a connection that is not current change nothing.
//! - A session id in use stays with the client connection that holds it (SBRP-RELAY-20).

use std::collections::BTreeMap;
use std::time::Duration;

use super::pair::{Pair, PairAction, PairInput, PairState};
use super::route::{ClientRoute, ConnectionId, Route};
use crate::control::ControlCode;
use crate::frame::{Signal, SignalKind};
use crate::id::SessionId;
use crate::impossible::Impossible;
use crate::time::Instant;

/// What happens to the connections of one daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableInput {
    /// A daemon's connection was authenticated; `max_sessions` limits its sessions, and `epoch`
    /// says which of its presences this is.
    DaemonArrived {
        /// Whose connection.
        connection: ConnectionId,
        /// The epoch of its presence; the newest counts.
        epoch: u64,
        /// Whether its token permits to resume sessions.
        resumable: bool,
        /// The most sessions at once.
        max_sessions: u64,
    },
    /// The daemon's connection is gone.
    DaemonLeft {
        /// Whose connection.
        connection: ConnectionId,
    },
    /// A client's connection was authenticated; its token names the session, and the least epoch of
    /// its daemon's presence.
    ClientArrived {
        /// Whose connection.
        connection: ConnectionId,
        /// The session.
        session: SessionId,
        /// The least epoch of its daemon's presence.
        epoch: u64,
    },
    /// A client's connection was authenticated, but the relay refuses it.
    ClientRefused {
        /// Whose connection.
        connection: ConnectionId,
        /// The session.
        session: SessionId,
        /// Why.
        refusal: ClientRefusal,
    },
    /// A client's connection is gone.
    ClientLeft {
        /// Whose connection.
        connection: ConnectionId,
        /// The session.
        session: SessionId,
    },
    /// The daemon sent a signal.
    Signalled {
        /// Whose connection.
        connection: ConnectionId,
        /// The session.
        session: SessionId,
        /// What it said.
        signal: Signal,
    },
    /// The daemon was revoked: all its connections are closed.
    Revoked,
    /// The relay ends this session.
    Over {
        /// The session.
        session: SessionId,
    },
    /// The deadline may have come.
    Tick,
}

/// Actions must be executed in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableAction {
    /// Sets a client's route and sends it the control code. Both must be applied atomically: no
    /// frame may be queued for the client, or read from it, between the two.
    Reroute {
        /// Whose connection.
        connection: ConnectionId,
        /// Where its frames go from now on.
        route: ClientRoute,
        /// A code to send with it.
        tell: Option<(ControlCode, SessionId)>,
    },
    /// Send a control code.
    Tell {
        /// Whose connection.
        connection: ConnectionId,
        /// The code.
        code: ControlCode,
        /// The session that it is about; `None`: the connection.
        session: Option<SessionId>,
    },
    /// Close a connection.
    Close {
        /// Whose connection.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
}

/// Why a client with a valid token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRefusal {
    /// Its daemon was revoked.
    DaemonRevoked,
    /// Its user has reached the session limit.
    UserLimit,
}

/// Why the table closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// This control code was sent, and it closes the connection.
    Told(ControlCode),
    /// The same daemon opened a newer connection (SBRP-RELAY-18).
    Replaced,
}

/// All pairs of one daemon.
#[derive(Debug)]
pub struct PairTable {
    grace: Duration,
    daemon: Option<ConnectionId>,
    /// The epoch of the daemon's connection, or of its last one.
    epoch: u64,
    /// The session limit of the daemon.
    max_sessions: u64,
    pairs: BTreeMap<SessionId, PairedClient>,
}

/// A pair and the connection of its client.
#[derive(Debug)]
struct PairedClient {
    client: ConnectionId,
    pair: Pair,
}

impl PairTable {
    /// A client with a daemon that is connected.
    pub fn new(grace: Duration) -> Self {
        Self { grace, daemon: None, epoch: 0, max_sessions: 0, pairs: BTreeMap::new() }
    }

    /// What follows from an input.
    pub fn handle(
        &mut self,
        input: TableInput,
        now: Instant,
    ) -> Result<Vec<TableAction>, Impossible> {
        match input {
            TableInput::DaemonArrived { connection, .. } if self.daemon == Some(connection) => {
                Ok(vec![])
            }
            TableInput::DaemonArrived { connection, epoch, .. } if epoch < self.epoch => {
                Ok(vec![TableAction::Close { connection, reason: CloseReason::Replaced }])
            }
            TableInput::DaemonArrived { connection, epoch, resumable, max_sessions } => {
                let mut actions = Vec::new();
                if let Some(old) = self.daemon {
                    actions.push(TableAction::Close {
                        connection: old,
                        reason: CloseReason::Replaced,
                    });
                    actions.extend(self.each(PairInput::DaemonLost, now)?);
                }
                self.daemon = Some(connection);
                self.epoch = epoch;
                self.max_sessions = max_sessions;
                actions.extend(self.each(PairInput::DaemonReturned { resumable }, now)?);
                Ok(actions)
            }
            TableInput::DaemonLeft { connection } if self.daemon == Some(connection) => {
                self.daemon = None;
                self.each(PairInput::DaemonLost, now)
            }
            TableInput::ClientArrived { connection, session, epoch } => {
                Ok(self.pair(connection, session, epoch))
            }
            TableInput::ClientRefused { connection, session, refusal } => {
                let (code, session) = match refusal {
                    ClientRefusal::DaemonRevoked => (ControlCode::DaemonNotFound, Some(session)),
                    ClientRefusal::UserLimit => (ControlCode::Forbidden, None),
                };
                Ok(refuse(connection, code, session))
            }
            TableInput::ClientLeft { connection, session }
                if self.client_of(session) == Some(connection) =>
            {
                self.one(session, PairInput::ClientGone, now)
            }
            TableInput::Signalled { connection, session, signal }
                if self.daemon == Some(connection) =>
            {
                if self.pairs.contains_key(&session) {
                    let input = match signal.kind() {
                        SignalKind::Ready => PairInput::DaemonReady,
                        SignalKind::Close => PairInput::DaemonClosed,
                    };
                    self.one(session, input, now)
                } else {
                    let code = ControlCode::SessionNotFound;
                    Ok(vec![TableAction::Tell { connection, code, session: Some(session) }])
                }
            }
            TableInput::Revoked => Ok(self.give_up()),
            TableInput::Over { session } => self.one(session, PairInput::Over, now),
            TableInput::Tick => self.each(PairInput::Tick, now),
            TableInput::DaemonLeft { .. }
            | TableInput::ClientLeft { .. }
            | TableInput::Signalled { .. } => Ok(vec![]),
        }
    }

    /// Pairs an arriving client, or refuses it with a code and closes it.
    fn pair(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        epoch: u64,
    ) -> Vec<TableAction> {
        if self.pairs.contains_key(&session) {
            return refuse(connection, ControlCode::Forbidden, None);
        }
        // A presence of an older epoch is not the one that the client asked for: that is elsewhere,
        // or about to connect.
        let Some(daemon) = self.daemon.filter(|_| epoch <= self.epoch) else {
            return refuse(connection, ControlCode::DaemonOffline, Some(session));
        };
        if self.pairs.len() as u64 >= self.max_sessions {
            return refuse(connection, ControlCode::Forbidden, None);
        }
        self.pairs
            .insert(session, PairedClient { client: connection, pair: Pair::new(self.grace) });
        vec![TableAction::Reroute { connection, route: ClientRoute::Paired(daemon), tell: None }]
    }

    /// Closes all connections. Their later events are ignored, because they are no longer current.
    fn give_up(&mut self) -> Vec<TableAction> {
        let mut actions = Vec::new();
        for (session, PairedClient { client: connection, .. }) in std::mem::take(&mut self.pairs) {
            let code = ControlCode::DaemonNotFound;
            let (route, tell) = (ClientRoute::Closed, Some((code, session)));
            let reason = CloseReason::Told(code);
            actions.extend([
                TableAction::Reroute { connection, route, tell },
                TableAction::Close { connection, reason },
            ]);
        }
        if let Some(connection) = self.daemon.take() {
            let code = ControlCode::Unauthorized;
            let reason = CloseReason::Told(code);
            actions.extend([
                TableAction::Tell { connection, code, session: None },
                TableAction::Close { connection, reason },
            ]);
        }
        actions
    }

    fn each(&mut self, input: PairInput, now: Instant) -> Result<Vec<TableAction>, Impossible> {
        let sessions: Vec<_> = self.pairs.keys().copied().collect();
        let mut actions = Vec::new();
        for session in sessions {
            actions.extend(self.one(session, input, now)?);
        }
        Ok(actions)
    }

    fn one(
        &mut self,
        session: SessionId,
        input: PairInput,
        now: Instant,
    ) -> Result<Vec<TableAction>, Impossible> {
        let Some(PairedClient { client, pair }) = self.pairs.get_mut(&session) else {
            return Ok(vec![]);
        };
        let (client, daemon) = (*client, self.daemon);
        let actions = pair.handle(input, now)?;
        let route = route(pair, daemon);
        if pair.state() == PairState::Closed {
            self.pairs.remove(&session);
        }
        let actions = actions.into_iter().filter_map(|action| match action {
            PairAction::TellClient(code) => Some(TableAction::Reroute {
                connection: client,
                route,
                tell: Some((code, session)),
            }),
            PairAction::TellDaemon(code) => daemon.map(|connection| TableAction::Tell {
                connection,
                code,
                session: Some(session),
            }),
            PairAction::CloseClient(code) => {
                Some(TableAction::Close { connection: client, reason: CloseReason::Told(code) })
            }
        });
        Ok(actions.collect())
    }

    /// The route of a client's connection, as set by the actions so far.
    pub fn client_route(&self, connection: ConnectionId, session: SessionId) -> ClientRoute {
        match self.pairs.get(&session) {
            Some(paired) if paired.client == connection => route(&paired.pair, self.daemon),
            _ => ClientRoute::Closed,
        }
    }

    /// Routes a daemon's frame whose receiver is not cached or is out of date. A session that is
    /// not paired, for example before its `Signal(ready)`, has no receiver.
    pub fn route_from_daemon(&self, connection: ConnectionId, session: SessionId) -> Route {
        if self.daemon != Some(connection) {
            return Route::Stale;
        }
        match self.pairs.get(&session) {
            Some(paired) if paired.pair.state() == PairState::Paired => Route::To(paired.client),
            _ => Route::Refuse(ControlCode::SessionNotFound),
        }
    }

    /// When the next `Tick` is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.pairs.values().filter_map(|paired| paired.pair.deadline()).min()
    }

    /// The state of a session.
    pub fn state(&self, session: SessionId) -> Option<PairState> {
        self.pairs.get(&session).map(|paired| paired.pair.state())
    }

    /// The daemon's connection, if it has one.
    pub fn daemon(&self) -> Option<ConnectionId> {
        self.daemon
    }

    /// The state of each session.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (SessionId, PairState)> {
        self.pairs.iter().map(|(session, paired)| (*session, paired.pair.state()))
    }

    /// Whether the table has neither a daemon connection nor sessions and can be removed.
    pub fn is_empty(&self) -> bool {
        self.daemon.is_none() && self.pairs.is_empty()
    }

    /// The connection of the client that holds this session.
    pub fn client_of(&self, session: SessionId) -> Option<ConnectionId> {
        self.pairs.get(&session).map(|paired| paired.client)
    }
}

/// Refuses a client: sends the code and closes the connection.
fn refuse(
    connection: ConnectionId,
    code: ControlCode,
    session: Option<SessionId>,
) -> Vec<TableAction> {
    let reason = CloseReason::Told(code);
    vec![TableAction::Tell { connection, code, session }, TableAction::Close { connection, reason }]
}

/// The client's route in this state of the pair.
fn route(pair: &Pair, daemon: Option<ConnectionId>) -> ClientRoute {
    match (pair.state(), daemon) {
        (PairState::Paired, Some(daemon)) => ClientRoute::Paired(daemon),
        (PairState::Paired, None) | (PairState::Paused { .. }, _) => ClientRoute::Paused,
        (PairState::Pending { .. }, _) => ClientRoute::Pending,
        (PairState::Closed, _) => ClientRoute::Closed,
    }
}

#[cfg(test)]
mod tests;
