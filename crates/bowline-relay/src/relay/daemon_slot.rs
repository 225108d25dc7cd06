//! One daemon id with its connections: the protocol's [`PairTable`], and the outbound queues to
//! which the table's actions are applied.
//!
//! One lock per daemon id. It is taken when a connection joins, leaves or signals, and when a
//! daemon sends to a session that is not in its route cache. Other frames do not take it. Actions
//! are carried out under the lock, in the order in which the table decided them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_sbrp::frame::Signal;
use bowline_sbrp::id::{DaemonId, SessionId};
use bowline_sbrp::relay::{
    ClientRefusal, ConnectionId, PairState, PairTable, Route, TableAction, TableInput,
};

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
    queues: HashMap<ConnectionId, Arc<OutboundQueue>>,
    /// A task already waits for the next deadline.
    timed: bool,
    /// The slot was removed from the daemon table; its holders have to look it up again.
    retired: bool,
}

/// The slot was removed from the daemon table after it was looked up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Retired;

impl DaemonSlot {
    pub(crate) fn new(daemon: DaemonId, grace: Duration) -> Self {
        let table = PairTable::new(grace);
        let state = SlotState { table, queues: HashMap::new(), timed: false, retired: false };
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
        resumable: bool,
        max_sessions: u64,
        meters: &Meters,
    ) -> Result<(), Retired> {
        let mut state = self.lock();
        if state.retired {
            return Err(Retired);
        }
        state.queues.insert(queue.connection, Arc::clone(queue));
        state.handle(
            TableInput::DaemonArrived { connection: queue.connection, resumable, max_sessions },
            meters,
        );
        Ok(())
    }

    /// Adds a client's connection: it is paired, or told why not.
    pub(crate) fn client_arrived(
        &self,
        queue: &Arc<OutboundQueue>,
        session: SessionId,
        refusal: Option<ClientRefusal>,
        meters: &Meters,
    ) -> Result<(), Retired> {
        let mut state = self.lock();
        if state.retired {
            return Err(Retired);
        }
        let connection = queue.connection;
        state.queues.insert(connection, Arc::clone(queue));
        let input = match refusal {
            None => TableInput::ClientArrived { connection, session },
            Some(refusal) => TableInput::ClientRefused { connection, session, refusal },
        };
        state.handle(input, meters);
        Ok(())
    }

    pub(crate) fn daemon_left(&self, connection: ConnectionId, meters: &Meters) {
        let mut state = self.lock();
        state.queues.remove(&connection);
        state.handle(TableInput::DaemonLeft { connection }, meters);
    }

    pub(crate) fn client_left(
        &self,
        connection: ConnectionId,
        session: SessionId,
        meters: &Meters,
    ) {
        let mut state = self.lock();
        state.queues.remove(&connection);
        state.handle(TableInput::ClientLeft { connection, session }, meters);
    }

    /// The daemon was revoked: all its connections are notified and closed.
    pub(crate) fn revoked(&self, meters: &Meters) {
        self.lock().handle(TableInput::Revoked, meters);
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
        route.look_up(|client| state.queues.get(&client).cloned())
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
        state.retired |= state.table.is_empty() && state.queues.is_empty();
        state.retired
    }

    /// Closes all connections of the slot.
    pub(crate) fn close_all(&self, cause: CloseCause) {
        for queue in self.lock().queues.values() {
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
        for queue in state.queues.values() {
            let (frames, bytes) = queue.depth();
            gauges.queued_frames += frames;
            gauges.queued_bytes += bytes;
        }
    }
}

impl SlotState {
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
            let Some(queue) = self.queues.get(&connection) else { continue };
            match action {
                TableAction::Reroute { route, tell, .. } => {
                    let daemon = route.daemon().and_then(|connection| self.queues.get(&connection));
                    queue.reroute(route, daemon.cloned(), tell);
                }
                TableAction::Tell { code, session, .. } => queue.tell(code, session),
                TableAction::Close { reason, .. } => queue.close(reason.into()),
            }
        }
    }
}
