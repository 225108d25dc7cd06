//! The tunnels of a daemon: in use, waiting for their device's next session, or closed by it while services
//! still work on what it sent.
//!
//! Invariants
//! - Of two sessions of one tunnel the newer counts.
//! - A tunnel counts against the limits until its last service has ended.
//! - Whatever leaves the table ends at once: its session, its streams and its services.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bowline_sbrp::tunnel::{TunnelBudget, TunnelId};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::accept::accept;
use super::core::{Carrier, TunnelCore};
use super::peer::TunnelPeer;
use super::services::Services;

/// A tunnel's owner, and its name for it.
pub(super) type TunnelKey = (Option<[u8; 32]>, TunnelId);

#[derive(Debug)]
pub(super) struct Tunnels {
    /// How long a tunnel is kept without a session.
    keep: Duration,
    /// How long services may go on after the tunnel was closed.
    linger: Duration,
    /// What all tunnels may hold in memory together.
    budget: TunnelBudget,
    table: Mutex<TunnelTable>,
}

#[derive(Debug, Default)]
struct TunnelTable {
    open: HashMap<TunnelKey, Served>,
    /// Closed by their devices; nobody resumes them.
    closed: Vec<Served>,
}

#[derive(Debug)]
struct Served {
    peer: TunnelPeer,
    /// What the tunnels of its device may hold in memory together.
    budget: TunnelBudget,
    core: Arc<TunnelCore>,
    /// Cancelled when a newer session takes the tunnel over.
    session: CancellationToken,
    /// Since when it has no session.
    idle_since: Option<Instant>,
    /// Cancelled when all services have ended.
    done: CancellationToken,
    /// Accepts streams and runs services for them.
    _accepting: AbortOnDropHandle<()>,
}

impl Served {
    fn begin(peer: TunnelPeer, services: Arc<dyn Services>, budget: TunnelBudget) -> Self {
        let (core, streams) = TunnelCore::daemon(budget.clone());
        let done = CancellationToken::new();
        let accepting = accept(Arc::clone(&core), streams, services, peer.clone());
        let guard = done.clone().drop_guard();
        let accepting = tokio::spawn(async move {
            let _guard = guard;
            accepting.await;
        });
        let (session, _accepting) = (CancellationToken::new(), AbortOnDropHandle::new(accepting));
        Self { peer, budget, core, session, idle_since: None, done, _accepting }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.session.cancel();
        self.core.abort();
    }
}

impl Tunnels {
    pub(super) fn new(keep: Duration, linger: Duration, budget: TunnelBudget) -> Arc<Self> {
        Arc::new(Self { keep, linger, budget, table: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, TunnelTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tunnel of this name, taken from an older session if it has one. Resumed, with the number of
    /// records that it has received, or begun anew; `None` if there is no room for another.
    pub(super) fn hold(
        self: &Arc<Self>,
        id: TunnelId,
        resume: Option<u64>,
        peer: &TunnelPeer,
        services: &Arc<dyn Services>,
    ) -> Option<(HeldTunnel, Carrier, Option<u64>)> {
        let key = (peer.key(), id);
        let mut table = self.lock();
        if let (Some(peer_received), Some(served)) = (resume, table.open.get_mut(&key)) {
            served.session.cancel();
            served.session = CancellationToken::new();
            let (carrier, received) = served.core.take_over();
            if served.core.resume(carrier, peer_received).is_ok() {
                served.idle_since = None;
                return Some((self.held(key, served), carrier, Some(received)));
            }
        }
        // New, or its positions do not fit: it begins anew.
        table.open.remove(&key);
        if !table.makes_room_for(key.0) {
            return None;
        }
        let budget = table.budget_of(key.0).unwrap_or_else(|| self.budget.for_one_device());
        let served = Served::begin(peer.clone(), Arc::clone(services), budget);
        let (carrier, _) = served.core.take_over();
        let held = self.held(key, &served);
        table.open.insert(key, served);
        Some((held, carrier, None))
    }

    fn held(self: &Arc<Self>, key: TunnelKey, served: &Served) -> HeldTunnel {
        let (core, session) = (Arc::clone(&served.core), served.session.clone());
        HeldTunnel { key, core, session, tunnels: Arc::clone(self) }
    }

    /// Ends the tunnels of all other peers. How many there were.
    pub(super) fn retain(&self, may_stay: impl Fn(&TunnelPeer) -> bool) -> usize {
        let mut table = self.lock();
        let before = table.open.len() + table.closed.len();
        table.open.retain(|_, served| may_stay(&served.peer));
        table.closed.retain(|served| may_stay(&served.peer));
        before - table.open.len() - table.closed.len()
    }

    /// Nobody takes the tunnel up for a while.
    fn wait_for_session(self: &Arc<Self>, key: TunnelKey, session: CancellationToken) {
        let (tunnels, keep) = (Arc::downgrade(self), self.keep);
        spawn(async move {
            tokio::select! {
                () = session.cancelled() => {}
                () = sleep(keep) => {
                    let Some(tunnels) = tunnels.upgrade() else { return };
                    let mut table = tunnels.lock();
                    if !session.is_cancelled() {
                        table.open.remove(&key);
                    }
                }
            }
        });
    }

    /// The device closed the tunnel: services of streams that it ended go on with what they have.
    fn linger(self: &Arc<Self>, served: &Served) {
        let (done, core) = (served.done.clone(), Arc::downgrade(&served.core));
        let (tunnels, linger) = (Arc::downgrade(self), self.linger);
        spawn(async move {
            if timeout(linger, done.cancelled()).await.is_err() {
                tracing::debug!("services of a closed tunnel are not done in time");
            }
            let Some(tunnels) = tunnels.upgrade() else { return };
            let is_other = |one: &Served| !Weak::ptr_eq(&Arc::downgrade(&one.core), &core);
            tunnels.lock().closed.retain(is_other);
        });
    }
}

impl TunnelTable {
    /// The budget that the device's other tunnels have.
    fn budget_of(&self, owner: Option<[u8; 32]>) -> Option<TunnelBudget> {
        let mut all = self.open.values().chain(&self.closed);
        all.find(|served| served.peer.key() == owner).map(|served| served.budget.clone())
    }

    /// Whether a device may have one more tunnel. If there are as many as there may be, one without a
    /// session is given up for it: the device's own, or another's that has no streams. A program that
    /// runs often and leaves a tunnel behind each time is not locked out by them.
    fn makes_room_for(&mut self, owner: Option<[u8; 32]>) -> bool {
        let all = self.open.values().chain(&self.closed);
        let of_device = all.filter(|served| served.peer.key() == owner).count();
        let is_full = of_device >= MOST_TUNNELS_OF_DEVICE;
        if !is_full && self.open.len() + self.closed.len() < MOST_TUNNELS {
            return true;
        }
        let idle = self.open.iter().filter_map(|(key, served)| {
            let has_streams = served.core.streams() > 0;
            let may_go = key.0 == owner || !(is_full || has_streams);
            let since = served.idle_since.filter(|_| may_go)?;
            Some((has_streams, since, *key))
        });
        let longest = idle.min_by_key(|(has_streams, since, _)| (*has_streams, *since));
        let closed = self.closed.iter().position(|served| served.peer.key() == owner);
        // A device may still resume streams that wait, and not those that it closed.
        let given_up = longest.filter(|(has_streams, ..)| !has_streams || closed.is_none());
        match (given_up, closed) {
            (Some((.., key)), _) => drop(self.open.remove(&key)),
            (None, Some(oldest)) => drop(self.closed.remove(oldest)),
            (None, None) => return false,
        }
        true
    }
}

/// A tunnel in the hands of one session. However that ends, the tunnel waits for the next one, and is
/// given up after a while; or it is closed, if either end said that it is needed no more.
#[derive(Debug)]
pub(super) struct HeldTunnel {
    key: TunnelKey,
    pub(super) core: Arc<TunnelCore>,
    /// Cancelled when a newer session takes the tunnel over, and when the tunnel ends.
    pub(super) session: CancellationToken,
    tunnels: Arc<Tunnels>,
}

impl Drop for HeldTunnel {
    fn drop(&mut self) {
        let mut table = self.tunnels.lock();
        let served = table.open.get_mut(&self.key).filter(|_| !self.session.is_cancelled());
        let Some(served) = served else { return };
        if !self.core.is_closed() {
            tracing::debug!("a tunnel waits for its client");
            served.idle_since = Some(Instant::now());
            drop(table);
            self.tunnels.wait_for_session(self.key, self.session.clone());
            return;
        }
        tracing::debug!("a tunnel was closed");
        if let Some(served) = table.open.remove(&self.key)
            && self.core.streams() > 0
        {
            self.tunnels.linger(&served);
            table.closed.push(served);
        }
    }
}

/// Outside of a runtime the program is about to end.
fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(work);
    }
}

const MOST_TUNNELS_OF_DEVICE: usize = 16;
const MOST_TUNNELS: usize = 256;
