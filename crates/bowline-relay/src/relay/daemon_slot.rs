//! One daemon id with its connections: the protocol's [`PairTable`], and the outbound queues to
//! which the table's actions are applied.
//!
//! One lock per daemon id. It is taken when a connection joins, leaves or signals, and when a
//! daemon sends to a session that is not in its route cache. Other frames do not take it. Actions
//! are carried out under the lock, in the order in which the table decided them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_sbrp::control::ControlCode;
use bowline_sbrp::frame::Signal;
use bowline_sbrp::id::{DaemonId, SessionId};
use bowline_sbrp::relay::{
    ClientRefusal, ConnectionId, PairState, PairTable, Route, TableAction, TableInput,
};
use bowline_sbrp::revocation::Revoked;

use super::handover::HEAD_START;
use super::meters::{Gauges, Meters};
use super::outbound_queue::{CloseCause, OutboundQueue};

#[derive(Debug)]
pub(crate) struct DaemonSlot {
    daemon: DaemonId,
    state: Mutex<SlotState>,
}

#[derive(Debug)]
struct SlotState {
    table: PairTable,
    members: HashMap<ConnectionId, SlotMember>,
    /// Since when the daemon is to be at another relay.
    handed_over: Option<Instant>,
    /// A task already waits for the next deadline.
    timed: bool,
    /// The slot was removed from the daemon table; its holders have to look it up again.
    retired: bool,
}

/// A connection of the slot.
#[derive(Debug)]
struct SlotMember {
    queue: Arc<OutboundQueue>,
    grant: Grant,
    /// The session of a client.
    session: Option<SessionId>,
}

/// On what a connection was let in, and for how long.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    /// The user of a client, or the owner of a daemon if its token names one.
    pub(crate) user: Option<Arc<str>>,
    /// When the token was issued, in seconds since 1970.
    pub(crate) issued_at: u64,
    /// When the session is too old. A daemon's connection has no such end.
    pub(crate) ends_at: Option<Instant>,
}

impl Grant {
    /// Whether the token on which the connection was let in is no longer good.
    fn is_ended(&self, revoked: &Revoked) -> bool {
        self.user.as_deref().is_some_and(|user| revoked.ends_token(user, self.issued_at))
    }
}

/// A daemon's connection that arrives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DaemonArrival {
    pub(crate) epoch: u64,
    pub(crate) resumable: bool,
    pub(crate) max_sessions: u64,
}

/// A client's connection that arrives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientArrival {
    pub(crate) session: SessionId,
    pub(crate) epoch: u64,
    pub(crate) refusal: Option<ClientRefusal>,
}

/// The slot was removed from the daemon table after it was looked up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Retired;

impl DaemonSlot {
    pub(crate) fn new(daemon: DaemonId, grace: Duration) -> Self {
        let table = PairTable::new(grace);
        let state = SlotState {
            table,
            members: HashMap::new(),
            handed_over: None,
            timed: false,
            retired: false,
        };
        Self { daemon, state: Mutex::new(state) }
    }

    pub(crate) fn daemon(&self) -> &DaemonId {
        &self.daemon
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a daemon's connection, which replaces an older one.
    pub(crate) fn daemon_arrived(
        &self,
        queue: &Arc<OutboundQueue>,
        grant: &Grant,
        DaemonArrival { epoch, resumable, max_sessions }: DaemonArrival,
        meters: &Meters,
    ) -> Result<(), Retired> {
        let mut state = self.lock();
        if state.retired {
            return Err(Retired);
        }
        let connection = queue.connection;
        state.members.insert(connection, SlotMember::new(queue, grant, None));
        state.handed_over = None;
        let input = TableInput::DaemonArrived { connection, epoch, resumable, max_sessions };
        state.handle(input, meters);
        Ok(())
    }

    /// Adds a client's connection: it is paired, or told why not.
    pub(crate) fn client_arrived(
        &self,
        queue: &Arc<OutboundQueue>,
        grant: &Grant,
        ClientArrival { session, epoch, refusal }: ClientArrival,
        meters: &Meters,
    ) -> Result<(), Retired> {
        let mut state = self.lock();
        if state.retired {
            return Err(Retired);
        }
        let connection = queue.connection;
        state.members.insert(connection, SlotMember::new(queue, grant, Some(session)));
        let input = match refusal {
            None => TableInput::ClientArrived { connection, session, epoch },
            Some(refusal) => TableInput::ClientRefused { connection, session, refusal },
        };
        state.handle(input, meters);
        Ok(())
    }

    pub(crate) fn daemon_left(&self, connection: ConnectionId, meters: &Meters) {
        let mut state = self.lock();
        state.members.remove(&connection);
        state.handle(TableInput::DaemonLeft { connection }, meters);
    }

    pub(crate) fn client_left(
        &self,
        connection: ConnectionId,
        session: SessionId,
        meters: &Meters,
    ) {
        let mut state = self.lock();
        state.members.remove(&connection);
        state.handle(TableInput::ClientLeft { connection, session }, meters);
    }

    /// The daemon was revoked: all its connections are notified and closed.
    pub(crate) fn revoked(&self, meters: &Meters) {
        self.lock().handle(TableInput::Revoked, meters);
    }

    /// Ends the connections whose tokens are no longer good.
    pub(crate) fn end_revoked(&self, revoked: &Revoked, meters: &Meters) {
        let mut state = self.lock();
        state.end_sessions(|grant| grant.is_ended(revoked), meters);
        let daemons = state.members.values().filter(|member| member.session.is_none());
        for SlotMember { queue, .. } in daemons.filter(|member| member.grant.is_ended(revoked)) {
            // Told once: a queue that is being closed stays here until its connection has left.
            if queue.is_open() {
                queue.tell(ControlCode::Unauthorized, None);
                queue.close(CloseCause::Told(ControlCode::Unauthorized));
            }
        }
    }

    /// One step of handing the daemon over to another relay: closes it, if that is allowed now, and
    /// ends the sessions of its clients a moment after it has left, so that they find it there.
    /// Returns whether a daemon was closed.
    pub(crate) fn hand_over(&self, may_close: bool, now: Instant, meters: &Meters) -> bool {
        let mut state = self.lock();
        let daemon = state.table.daemon();
        match (state.handed_over, daemon) {
            (None, Some(daemon)) if may_close => {
                state.handed_over = Some(now);
                if let Some(SlotMember { queue, .. }) = state.members.get(&daemon) {
                    queue.close(CloseCause::Restart);
                }
                true
            }
            (None, Some(_)) => false,
            // It left by itself: it is not let in again.
            (None, None) => {
                state.handed_over = Some(now);
                false
            }
            (Some(since), None) if now >= since + HEAD_START => {
                state.end_sessions(|_| true, meters);
                false
            }
            (Some(_), _) => false,
        }
    }

    /// Ends the sessions that are too old.
    pub(crate) fn end_aged(&self, now: Instant, meters: &Meters) {
        self.lock().end_sessions(|grant| grant.ends_at.is_some_and(|at| at <= now), meters);
    }

    pub(crate) fn signalled(
        &self,
        connection: ConnectionId,
        session: SessionId,
        signal: Signal,
        meters: &Meters,
    ) {
        self.lock().handle(TableInput::Signalled { connection, session, signal }, meters);
    }

    /// The receiver of a daemon's message of this session.
    pub(crate) fn route_from_daemon(
        &self,
        connection: ConnectionId,
        session: SessionId,
    ) -> Route<Arc<OutboundQueue>> {
        let state = self.lock();
        let route = state.table.route_from_daemon(connection, session);
        route.look_up(|client| Some(Arc::clone(&state.members.get(&client)?.queue)))
    }

    pub(crate) fn is_online(&self) -> bool {
        self.lock().table.daemon().is_some()
    }

    /// When the next grace period ends, if no task waits for it yet. The caller has to wait for it.
    pub(crate) fn claim_timer(&self) -> Option<Instant> {
        let mut state = self.lock();
        if state.timed {
            return None;
        }
        let due = state.table.deadline();
        state.timed = due.is_some();
        due
    }

    /// Handles the end of a grace period; returns the next deadline, if there is one.
    pub(crate) fn tick(&self, meters: &Meters) -> Option<Instant> {
        let mut state = self.lock();
        state.handle(TableInput::Tick, meters);
        let due = state.table.deadline();
        state.timed = due.is_some();
        due
    }

    /// Marks the slot as removed if it has no connections and no sessions.
    pub(crate) fn retire_if_empty(&self) -> bool {
        let mut state = self.lock();
        state.retired |= state.table.is_empty() && state.members.is_empty();
        state.retired
    }

    /// Closes all connections of the slot.
    pub(crate) fn close_all(&self, cause: CloseCause) {
        for SlotMember { queue, .. } in self.lock().members.values() {
            queue.close(cause);
        }
    }

    pub(crate) fn count(&self, gauges: &mut Gauges) {
        let state = self.lock();
        for (_, pair) in state.table.pairs() {
            match pair {
                PairState::Paired => gauges.paired += 1,
                PairState::Paused { .. } => gauges.paused += 1,
                PairState::Pending { .. } => gauges.pending += 1,
                PairState::Closed => {}
            }
        }
        for SlotMember { queue, .. } in state.members.values() {
            let (frames, bytes) = queue.depth();
            gauges.queued_frames += frames;
            gauges.queued_bytes += bytes;
        }
    }
}

impl SlotMember {
    fn new(queue: &Arc<OutboundQueue>, grant: &Grant, session: Option<SessionId>) -> Self {
        Self { queue: Arc::clone(queue), grant: grant.clone(), session }
    }
}

impl SlotState {
    /// Ends the sessions of the clients that were let in on such a grant.
    fn end_sessions(&mut self, is_over: impl Fn(&Grant) -> bool, meters: &Meters) {
        let over: Vec<_> = self
            .members
            .iter()
            .filter(|(_, member)| is_over(&member.grant))
            .filter_map(|(connection, member)| Some((*connection, member.session?)))
            .collect();
        for (connection, session) in over {
            // A session id in use may belong to another connection than this one (SBRP-RELAY-20).
            if self.table.client_of(session) == Some(connection) {
                self.handle(TableInput::Over { session }, meters);
            }
        }
    }

    /// Passes the input to the table and carries out its actions.
    fn handle(&mut self, event: TableInput, meters: &Meters) {
        let Ok(actions) = self.table.handle(event, Instant::now()) else {
            meters.impossible();
            return;
        };
        for action in actions {
            let (TableAction::Reroute { connection, .. }
            | TableAction::Tell { connection, .. }
            | TableAction::Close { connection, .. }) = action;
            let Some(SlotMember { queue, .. }) = self.members.get(&connection) else { continue };
            match action {
                TableAction::Reroute { route, tell, .. } => {
                    let daemon = route.daemon().and_then(|daemon| self.members.get(&daemon));
                    queue.reroute(route, daemon.map(|daemon| Arc::clone(&daemon.queue)), tell);
                }
                TableAction::Tell { code, session, .. } => queue.tell(code, session),
                TableAction::Close { reason, .. } => queue.close(reason.into()),
            }
        }
    }
}
