//! From a valid token to a connection in its daemon's slot.
//!
//! A connection joins before the upgrade is answered: when a daemon sees that it is connected, it
//! is already online for every client that connects later.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bowline_net::{ConnectionPermit, door};
use bowline_sbrp::control::Role;
use bowline_sbrp::relay::ClientRefusal;
use bowline_sbrp::token::Admission;
use hyper::upgrade::OnUpgrade;

use super::Shared;
use super::connection::{Connection, Side};
use super::daemon_slot::{ClientArrival, DaemonArrival, DaemonSlot, Grant};
use super::daemon_table::UserPermit;
use super::outbound_queue::{CloseCause, OutboundQueue, QueueLimits};

/// A connection's membership in a daemon slot. It has to be ended with [`Membership::leave`].
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) queue: Arc<OutboundQueue>,
    pub(crate) slot: Arc<DaemonSlot>,
    pub(crate) side: Side,
    /// The client's session permit, held only to be released on drop.
    _permit: Option<UserPermit>,
}

impl Membership {
    /// Joins the daemon's slot. A refused connection gets the reason through its queue.
    pub(crate) fn join(shared: &Shared, admission: Admission) -> Self {
        let role = match &admission {
            Admission::Daemon(_) => Role::Daemon,
            Admission::Client(_) => Role::Client,
        };
        let limits = &shared.config.limits;
        let frames = match role {
            Role::Client => limits.queue_frames,
            Role::Daemon => limits.daemon_queue_frames,
        };
        let queue_limits = QueueLimits { frames, bytes: limits.queue_bytes };
        let queue =
            Arc::new(OutboundQueue::new(shared.daemons.next_connection(), role, queue_limits));
        let (daemons, meters) = (&shared.daemons, &shared.meters);
        meters.connected(role);
        let membership = match admission {
            Admission::Daemon(pass) => {
                let arrival = DaemonArrival {
                    epoch: pass.epoch,
                    resumable: pass.resumable,
                    max_sessions: pass
                        .concurrent_sessions
                        .map_or(limits.daemon_sessions, u64::from),
                };
                let user = pass.owner.map(Arc::from);
                let grant = Grant { user, issued_at: pass.issued_at, ends_at: None };
                let arrive =
                    |slot: &DaemonSlot| slot.daemon_arrived(&queue, &grant, arrival, meters);
                let slot = daemons.with_slot(&pass.daemon, arrive);
                daemons.start_timer(&slot, meters);
                Self { queue, slot, side: Side::daemon(), _permit: None }
            }
            Admission::Client(pass) => {
                let most = pass.concurrent_sessions.map_or(limits.user_sessions, u64::from);
                let permit = daemons.permit(&pass.user, most);
                let refusal = match &permit {
                    _ if shared.revocations.contains(&pass.daemon) => {
                        Some(ClientRefusal::DaemonRevoked)
                    }
                    None => Some(ClientRefusal::UserLimit),
                    Some(_) => None,
                };
                let ends_at = session_end(limits.session_age, random_part(), Instant::now());
                let user = permit.as_ref().map(UserPermit::user);
                let grant = Grant { user, issued_at: pass.issued_at, ends_at };
                let (session, epoch) = (pass.session, pass.epoch);
                let arrival = ClientArrival { session, epoch, refusal };
                let arrive =
                    |slot: &DaemonSlot| slot.client_arrived(&queue, &grant, arrival, meters);
                let slot = daemons.with_slot(&pass.daemon, arrive);
                Self { queue, slot, side: Side::Client { session: pass.session }, _permit: permit }
            }
        };
        // A revocation may have been applied just before this connection joined.
        shared.revocations.apply_to(&membership.slot, meters);
        // The shutdown may have begun after this connection was accepted.
        if shared.stopping.load(Ordering::Acquire) {
            membership.queue.close(CloseCause::Restart);
        }
        membership
    }

    /// Leaves the slot: nothing more is queued for this connection, and its peers are notified.
    pub(crate) fn leave(&self, shared: &Shared) {
        let waiting = self.queue.lock().shut();
        let Shared { daemons, meters, .. } = shared;
        match &self.side {
            Side::Client { session } => {
                self.slot.client_left(self.queue.connection, *session, meters)
            }
            Side::Daemon { .. } => {
                self.slot.daemon_left(self.queue.connection, meters);
                daemons.start_timer(&self.slot, meters);
            }
        }
        daemons.remove_if_empty(&self.slot);
        for waiter in waiting {
            waiter.wake();
        }
    }
}

/// When a session that begins now is too old. Spread over the last tenth of the age, so that the
/// sessions that began together, after a restart, do not all end together.
fn session_end(age: Duration, part: f64, now: Instant) -> Option<Instant> {
    if age.is_zero() { None } else { now.checked_add(age - age.mul_f64(part / 10.0)) }
}

/// A random number from 0 to 1.
fn random_part() -> f64 {
    f64::from(getrandom::u32().unwrap_or(0)) / f64::from(u32::MAX)
}

/// Waits for the upgrade and serves the connection until it closes.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    upgraded: OnUpgrade,
    membership: Membership,
    place: ConnectionPermit,
) {
    let role = membership.queue.role;
    let timeout = shared.config.limits.header_timeout;
    let upgraded = match tokio::time::timeout(timeout, upgraded).await {
        Ok(Ok(upgraded)) => door::taken_over(upgraded),
        _ => None,
    };
    match upgraded {
        // The connection was lost before the upgrade.
        None => membership.leave(&shared),
        Some((stream, read_ahead)) => {
            let queue = Arc::clone(&membership.queue);
            let connection = Connection::new(stream, &read_ahead, membership, Arc::clone(&shared));
            drop(read_ahead);
            // Boxed, so that the state of the upgrade is freed before the connection is served.
            Box::pin(connection.run()).await;
            // A daemon's route cache may keep the queue: what nobody writes any more is freed now.
            queue.lock().take(&mut Vec::new());
        }
    }
    shared.meters.disconnected(role);
    drop(place);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_one_moment_end_within_the_last_tenth_of_their_age() {
        let now = Instant::now();
        let hours = |n: u64| Duration::from_secs(n * 3600);
        assert_eq!(session_end(hours(20), 0.0, now), Some(now + hours(20)));
        assert_eq!(session_end(hours(20), 1.0, now), Some(now + hours(18)));
        assert_eq!(session_end(Duration::ZERO, 0.5, now), None, "0: never");
        assert_eq!(session_end(Duration::MAX, 0.0, now), None, "as good as never");
        let parts: Vec<_> = (0..100).map(|_| random_part()).collect();
        assert!(parts.iter().all(|part| (0.0..=1.0).contains(part)));
        assert!(parts.iter().any(|part| *part < 0.5) && parts.iter().any(|part| *part > 0.5));
    }
}
