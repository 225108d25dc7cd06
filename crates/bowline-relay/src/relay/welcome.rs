//! From a token that was found good to a connection with a place in the harbour.
//!
//! The place is taken before the upgrade is answered: a daemon that knows itself connected is
//! online to every client that comes after.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bowline_net::{Place, door};
use bowline_sbrp::control::{ControlCode, Role};
use bowline_sbrp::token::Admission;
use hyper::upgrade::OnUpgrade;

use super::Shared;
use super::connection::{Connection, Who};
use super::dock::Dock;
use super::harbour::Seat;
use super::line::{Ending, Line, Room};

/// A connection's place. Whoever takes one has to leave it.
#[derive(Debug)]
pub(crate) struct Mooring {
    pub(crate) line: Arc<Line>,
    pub(crate) dock: Arc<Dock>,
    pub(crate) who: Who,
    /// Held by a client, never read.
    _seat: Option<Seat>,
}

impl Mooring {
    /// Takes a place; whoever cannot have one is told so by its line.
    pub(crate) fn take(shared: &Shared, admission: Admission) -> Self {
        let role = match &admission {
            Admission::Daemon(_) => Role::Daemon,
            Admission::Client(_) => Role::Client,
        };
        let limits = &shared.config.limits;
        let frames = match role {
            Role::Client => limits.queue_frames,
            Role::Daemon => limits.daemon_queue_frames,
        };
        let room = Room { frames, bytes: limits.queue_bytes };
        let line = Arc::new(Line::new(shared.harbour.next_link(), role, room));
        let (harbour, meters) = (&shared.harbour, &shared.meters);
        meters.came(role);
        let mooring = match admission {
            Admission::Daemon(pass) => {
                let most = pass.concurrent_sessions.map_or(limits.daemon_sessions, u64::from);
                let came = |dock: &Dock| dock.daemon_came(&line, pass.resumable, most, meters);
                let dock = harbour.at(&pass.daemon, came);
                harbour.time(&dock, meters);
                Self { line, dock, who: Who::daemon(), _seat: None }
            }
            Admission::Client(pass) => {
                let most = pass.concurrent_sessions.map_or(limits.user_sessions, u64::from);
                let seat = harbour.seat(&pass.user, most);
                let refused = match &seat {
                    _ if shared.revocations.contains(&pass.daemon) => {
                        Some((ControlCode::DaemonNotFound, Some(pass.session)))
                    }
                    None => Some((ControlCode::Forbidden, None)),
                    Some(_) => None,
                };
                if let Some((code, session)) = refused {
                    line.tell(code, session);
                    line.close(Ending::Told(code));
                }
                let dock = harbour.at(&pass.daemon, |dock| match refused {
                    None => dock.client_came(&line, pass.session, meters),
                    Some(_) => Ok(()),
                });
                Self { line, dock, who: Who::Client { session: pass.session }, _seat: seat }
            }
        };
        // A revocation of this very moment may have passed the dock before anybody was there.
        if shared.revocations.contains(mooring.dock.daemon()) {
            mooring.dock.revoked(meters);
        }
        // Whoever comes while all are sent away is sent away, too.
        if shared.stopping.load(Ordering::Acquire) {
            mooring.line.close(Ending::Restart);
        }
        mooring
    }

    /// From here on nobody sends to it, and the other ends know that it is gone.
    pub(crate) fn leave(&self, shared: &Shared) {
        let waiting = self.line.lock().shut();
        let Shared { harbour, meters, .. } = shared;
        match &self.who {
            Who::Client { session } => self.dock.client_went(self.line.link, *session, meters),
            Who::Daemon { .. } => {
                self.dock.daemon_went(self.line.link, meters);
                harbour.time(&self.dock, meters);
            }
        }
        harbour.tidy(&self.dock);
        for waiter in waiting {
            waiter.wake();
        }
    }
}

/// Waits for the upgrade and serves the connection to its end.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    upgraded: OnUpgrade,
    mooring: Mooring,
    place: Place,
) {
    let role = mooring.line.role;
    let timeout = shared.config.limits.header_timeout;
    let upgraded = match tokio::time::timeout(timeout, upgraded).await {
        Ok(Ok(upgraded)) => door::taken_over(upgraded),
        _ => None,
    };
    match upgraded {
        // It went away before it had come.
        None => mooring.leave(&shared),
        Some((stream, read_ahead)) => {
            let connection = Connection::new(stream, &read_ahead, mooring, Arc::clone(&shared));
            drop(read_ahead);
            // In a box: what stands above is forgotten before a long life begins.
            Box::pin(connection.run()).await;
        }
    }
    shared.meters.went(role);
    drop(place);
}
