//! One daemon id with its connections: the protocol's berth, and the lines that carry out what it
//! decides.
//!
//! One lock per daemon id, taken when somebody comes, goes or signals, never by frames that are
//! passed on. Under it, every line is told in the order in which the berth decided.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_sbrp::frame::Signal;
use bowline_sbrp::id::{DaemonId, SessionId};
use bowline_sbrp::relay::{Action, Berth, Event, Link, PairState, Route};

use super::line::{Ending, Line};
use super::meters::{Census, Meters};

#[derive(Debug)]
pub(crate) struct Dock {
    daemon: DaemonId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    berth: Berth,
    lines: HashMap<Link, Arc<Line>>,
    /// Somebody waits for the next deadline already.
    timed: bool,
    /// Taken off the map: whoever still holds it asks the map again.
    retired: bool,
}

/// The dock was given up in the meantime.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Retired;

impl Dock {
    pub(crate) fn new(daemon: DaemonId, grace: Duration) -> Self {
        let berth = Berth::new(grace);
        let state = State { berth, lines: HashMap::new(), timed: false, retired: false };
        Self { daemon, state: Mutex::new(state) }
    }

    pub(crate) fn daemon(&self) -> &DaemonId {
        &self.daemon
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A daemon's connection, which replaces an older one.
    pub(crate) fn daemon_came(
        &self,
        line: &Arc<Line>,
        resumable: bool,
        max_sessions: u64,
        meters: &Meters,
    ) -> Result<(), Retired> {
        let mut state = self.lock();
        if state.retired {
            return Err(Retired);
        }
        state.lines.insert(line.link, Arc::clone(line));
        state.handle(Event::DaemonArrived { link: line.link, resumable, max_sessions }, meters);
        Ok(())
    }

    /// A client's connection: paired, or told why not.
    pub(crate) fn client_came(
        &self,
        line: &Arc<Line>,
        session: SessionId,
        meters: &Meters,
    ) -> Result<(), Retired> {
        let mut state = self.lock();
        if state.retired {
            return Err(Retired);
        }
        state.lines.insert(line.link, Arc::clone(line));
        state.handle(Event::ClientArrived { link: line.link, session }, meters);
        Ok(())
    }

    pub(crate) fn daemon_went(&self, link: Link, meters: &Meters) {
        let mut state = self.lock();
        state.lines.remove(&link);
        state.handle(Event::DaemonLeft { link }, meters);
    }

    pub(crate) fn client_went(&self, link: Link, session: SessionId, meters: &Meters) {
        let mut state = self.lock();
        state.lines.remove(&link);
        state.handle(Event::ClientLeft { link, session }, meters);
    }

    /// Its daemon was taken out of force: everybody is told and closed.
    pub(crate) fn revoked(&self, meters: &Meters) {
        self.lock().handle(Event::Revoked, meters);
    }

    pub(crate) fn signalled(
        &self,
        link: Link,
        session: SessionId,
        signal: Signal,
        meters: &Meters,
    ) {
        self.lock().handle(Event::Signalled { link, session, signal }, meters);
    }

    /// Where a daemon's message of this session goes.
    pub(crate) fn client_of(&self, link: Link, session: SessionId) -> Route<Arc<Line>> {
        let state = self.lock();
        let route = state.berth.route_from_daemon(link, session);
        route.look_up(|client| state.lines.get(&client).cloned())
    }

    pub(crate) fn is_online(&self) -> bool {
        self.lock().berth.daemon().is_some()
    }

    /// When the next grace ends, for whoever shall wait for it: asked for by one at a time.
    pub(crate) fn claim_timer(&self) -> Option<Instant> {
        let mut state = self.lock();
        if state.timed {
            return None;
        }
        let due = state.berth.deadline();
        state.timed = due.is_some();
        due
    }

    /// The time has come; gives the next, if there is one to wait for.
    pub(crate) fn tick(&self, meters: &Meters) -> Option<Instant> {
        let mut state = self.lock();
        state.handle(Event::Tick, meters);
        let due = state.berth.deadline();
        state.timed = due.is_some();
        due
    }

    /// Gives it up if nobody is there.
    pub(crate) fn retire_if_empty(&self) -> bool {
        let mut state = self.lock();
        state.retired |= state.berth.is_empty() && state.lines.is_empty();
        state.retired
    }

    /// Ends all its connections.
    pub(crate) fn close_all(&self, ending: Ending) {
        for line in self.lock().lines.values() {
            line.close(ending);
        }
    }

    pub(crate) fn count(&self, census: &mut Census) {
        let state = self.lock();
        for (_, pair) in state.berth.pairs() {
            match pair {
                PairState::Paired => census.paired += 1,
                PairState::Paused { .. } => census.paused += 1,
                PairState::Pending { .. } => census.pending += 1,
                PairState::Closed => {}
            }
        }
        for line in state.lines.values() {
            let (frames, bytes) = line.depth();
            census.queued_frames += frames;
            census.queued_bytes += bytes;
        }
    }
}

impl State {
    /// Has the table decide, and carries out what it says.
    fn handle(&mut self, event: Event, meters: &Meters) {
        let Ok(actions) = self.berth.handle(event, Instant::now()) else {
            meters.impossible();
            return;
        };
        for action in actions {
            let (Action::Reroute { link, .. }
            | Action::Tell { link, .. }
            | Action::Close { link, .. }) = action;
            let Some(line) = self.lines.get(&link) else { continue };
            match action {
                Action::Reroute { route, tell, .. } => {
                    let daemon = route.daemon().and_then(|link| self.lines.get(&link));
                    line.reroute(route, daemon.cloned(), tell);
                }
                Action::Tell { code, session, .. } => line.tell(code, session),
                Action::Close { reason, .. } => line.close(reason.into()),
            }
        }
    }
}
