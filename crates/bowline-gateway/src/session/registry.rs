//! The table of session actors in this process. An actor is started when it is needed, and ends
//! when its session is idle. In place of an actor there may be a proxy of another replica's.
//!
//! Lock order: a lock here is held alone, for a few instructions, never across an `await`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use bowline_bus::Bus;
use bowline_sbp::id::SessionId;
use bowline_sbp::session::{Fence, LiveState, NewSession, ReplicaId, SessionLimits};
use bowline_store::Store;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::driver::{ActorStart, Driver, Envelope, TaskReport};
use super::handle::SessionHandle;
use super::held;
use super::history::Budget;
use super::live::{Live, Phase, Role};
use super::remote::Remote;
use super::retries::Retries;
use super::work::Workers;
use crate::liveness::Gate;

/// Commands in one inbox; senders wait when it is full.
const INBOX: usize = 256;
/// How long the start waits for sessions with unfinished turns to be loaded.
const LOADING: Duration = Duration::from_secs(5);
/// The most actors that linger in an idle session.
const LINGERING: usize = 1024;

/// Bounds of live sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) session: SessionLimits,
    /// Memory for the histories of sessions in use, in bytes.
    pub(crate) history_memory: usize,
    /// How long an actor stays after its session became idle.
    pub(crate) linger: Duration,
    /// How long a client may repeat a request on its own.
    pub(crate) retry_window: Duration,
}

/// All live sessions of this process.
#[derive(Debug)]
pub(crate) struct LiveSessions {
    identity: RwLock<Identity>,
    pub(super) store: Arc<dyn Store>,
    pub(super) workers: Arc<dyn Workers>,
    pub(super) bounds: Bounds,
    pub(super) histories: Arc<Budget>,
    pub(super) lingering: Arc<Semaphore>,
    /// Places for senders that wait while a session is held.
    pub(super) held: Arc<Semaphore>,
    pub(crate) retries: Retries,
    pub(super) stop: CancellationToken,
    /// Closed while this replica may have lost its lease.
    pub(crate) gate: Gate,
    pub(super) suspended: watch::Sender<bool>,
    pub(super) remote: Remote,
    slots: Mutex<HashMap<SessionId, Slot>>,
    released: mpsc::UnboundedSender<(ReplicaId, SessionId, Fence)>,
    tasks: TaskTracker,
}

/// Who this process is among the replicas.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) me: ReplicaId,
    /// This id may write nothing any more: it was declared dead, or the process has stopped.
    pub(super) ended: CancellationToken,
}

#[derive(Debug)]
enum Slot {
    Open(ActorRef),
    /// Its actor is about to end, or to reopen if commands came meanwhile.
    Closing(CancellationToken),
}

/// The channels of an actor.
#[derive(Debug, Clone)]
pub(super) struct ActorRef {
    pub(super) commands: mpsc::Sender<Box<Envelope>>,
    pub(super) facts: mpsc::UnboundedSender<Box<TaskReport>>,
    pub(super) live: Arc<watch::Sender<Live>>,
    status: Arc<ActorStatus>,
}

/// An actor's load, for metrics and readiness.
#[derive(Debug, Default)]
pub(super) struct ActorStatus {
    pub(super) turns: AtomicUsize,
    /// Its session is not idle.
    pub(super) busy: AtomicBool,
    /// A commit of something that has happened is being retried.
    pub(super) trouble: AtomicBool,
    /// Links of other replicas at which nobody watches.
    pub(super) quiet_links: AtomicUsize,
    pub(super) role: Role,
}

impl LiveSessions {
    pub(crate) fn new(
        me: ReplicaId,
        store: Arc<dyn Store>,
        workers: Arc<dyn Workers>,
        bounds: Bounds,
        bus: Arc<dyn Bus>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let (released, to_release) = mpsc::unbounded_channel();
        tokio::spawn(release(Arc::downgrade(&store), to_release, stop.clone()));
        Arc::new(Self {
            identity: RwLock::new(Identity { me, ended: CancellationToken::new() }),
            store,
            workers,
            histories: Arc::new(Budget::new(bounds.history_memory)),
            bounds,
            lingering: Arc::new(Semaphore::new(LINGERING)),
            held: Arc::new(Semaphore::new(held::MOST)),
            retries: Retries::new(bounds.retry_window),
            stop,
            gate: Gate::new(),
            suspended: watch::Sender::new(false),
            remote: Remote::new(bus),
            slots: Mutex::default(),
            released,
            tasks: TaskTracker::new(),
        })
    }

    /// The replica id of this process.
    pub(crate) fn me(&self) -> ReplicaId {
        self.identity().me
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on this process has another id. Returns who it was before.
    pub(super) fn renamed(&self, me: ReplicaId) -> Identity {
        let new = Identity { me, ended: CancellationToken::new() };
        let mut identity = self.identity.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *identity, new)
    }

    pub(crate) fn handle(self: &Arc<Self>, id: SessionId) -> SessionHandle {
        SessionHandle::new(Arc::clone(self), id)
    }

    /// Starts the actors of sessions with unfinished turns of a dead replica (SBP-L2-13, G13).
    /// Returns the number of turns.
    pub(crate) async fn recover(self: &Arc<Self>) -> bowline_store::Result<u64> {
        let left = self.store.unfinished(self.me()).await?;
        let loading = self.take_over(left.iter().map(|(id, _)| *id)).await;
        // A client that repeats its request joins a turn that is loaded.
        let loaded = async {
            for mut live in loading {
                let _ = live.changed().await;
            }
        };
        let _ = tokio::time::timeout(LOADING, loaded).await;
        Ok(left.iter().map(|(_, turns)| turns).sum())
    }

    /// The live state of a session, if it has an actor or a proxy here. Of an actor without a lease
    /// it may be an old one: [`LiveSessions::look`] knows better.
    pub(crate) fn look_at(&self, id: SessionId) -> Option<Arc<LiveState>> {
        match self.slots().get(&id)? {
            Slot::Open(actor) => Some(Arc::clone(&actor.live.borrow().state)),
            Slot::Closing(_) => None,
        }
    }

    /// Every session that has an actor or a proxy here, with its live state.
    pub(super) fn look_at_all(&self) -> Vec<(SessionId, Arc<LiveState>)> {
        self.seen_by(|_| true)
    }

    /// The live state of a session that this replica owns.
    pub(super) fn owned(&self, id: SessionId) -> Option<Arc<LiveState>> {
        self.look_by(id, |actor| actor.status.role.is_owner())
    }

    /// The live states of all sessions that this replica owns.
    pub(super) fn owned_all(&self) -> Vec<(SessionId, Arc<LiveState>)> {
        self.seen_by(|actor| actor.status.role.is_owner())
    }

    /// The live state of a session, if it is known here for sure.
    pub(super) fn sure_of(&self, id: SessionId) -> Option<Arc<LiveState>> {
        self.look_by(id, |actor| {
            let known = actor.live.borrow().phase == Phase::Known;
            actor.status.role.is_owner() || actor.status.role.is_proxy() && known
        })
    }

    fn look_by(&self, id: SessionId, by: impl Fn(&ActorRef) -> bool) -> Option<Arc<LiveState>> {
        match self.slots().get(&id)? {
            Slot::Open(actor) if by(actor) => Some(Arc::clone(&actor.live.borrow().state)),
            Slot::Open(_) | Slot::Closing(_) => None,
        }
    }

    fn seen_by(&self, by: impl Fn(&ActorRef) -> bool) -> Vec<(SessionId, Arc<LiveState>)> {
        let slots = self.slots();
        let open = slots.iter().filter_map(|(id, slot)| match slot {
            Slot::Open(actor) if by(actor) => Some((*id, Arc::clone(&actor.live.borrow().state))),
            Slot::Open(_) | Slot::Closing(_) => None,
        });
        open.collect()
    }

    /// The number of running or queued turns, and of sessions that are not idle.
    pub(crate) fn at_work(&self) -> (usize, usize) {
        let slots = self.slots();
        let status = slots.values().filter_map(Slot::status);
        status.fold((0, 0), |(turns, sessions), status| {
            let busy = usize::from(status.busy.load(Ordering::Relaxed));
            (turns + status.turns.load(Ordering::Relaxed), sessions + busy)
        })
    }

    /// Whether any actor is retrying a commit.
    pub(crate) fn is_in_trouble(&self) -> bool {
        let in_trouble = |status: &Arc<ActorStatus>| status.trouble.load(Ordering::Relaxed);
        self.slots().values().filter_map(Slot::status).any(in_trouble)
    }

    /// Waits until every actor has ended. None is started after the stop.
    pub(crate) async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Retires this replica: the store refuses its further commits, and others may take its leases.
    pub(crate) async fn retire(&self) {
        let Identity { me, ended } = self.identity();
        if let Err(error) = self.store.retire(me).await {
            tracing::warn!(%error, "cannot retire this replica in the store");
        }
        ended.cancel();
    }

    /// The session's actor, started if there is none.
    pub(super) async fn actor(self: &Arc<Self>, id: SessionId) -> ActorRef {
        loop {
            let closing = {
                let mut slots = self.slots();
                match slots.get(&id) {
                    Some(Slot::Open(actor)) => return actor.clone(),
                    Some(Slot::Closing(closing)) => closing.clone(),
                    None => return self.start(&mut slots, id, ActorStart::Load),
                }
            };
            closing.cancelled().await;
        }
    }

    /// The same actor with its new inbox, if it does not end after all.
    pub(super) async fn reopening(&self, id: SessionId, actor: &ActorRef) -> Option<ActorRef> {
        loop {
            let closing = match self.slots().get(&id)? {
                Slot::Open(open) => {
                    let same = Arc::ptr_eq(&open.live, &actor.live) && !open.commands.is_closed();
                    return same.then(|| open.clone());
                }
                Slot::Closing(closing) => closing.clone(),
            };
            closing.cancelled().await;
        }
    }

    /// Starts the actor of a session that its first turn creates.
    pub(super) fn make(self: &Arc<Self>, new: NewSession) -> ActorRef {
        let id = new.id;
        self.start(&mut self.slots(), id, ActorStart::Make(Box::new(new)))
    }

    fn start(
        self: &Arc<Self>,
        slots: &mut HashMap<SessionId, Slot>,
        id: SessionId,
        boot: ActorStart,
    ) -> ActorRef {
        let (commands, inbox) = mpsc::channel(INBOX);
        let (facts, reports) = mpsc::unbounded_channel();
        let actor = ActorRef {
            commands,
            facts,
            live: Arc::new(watch::Sender::new(Live::none())),
            status: Arc::default(),
        };
        actor.status.busy.store(true, Ordering::Relaxed);
        slots.insert(id, Slot::Open(actor.clone()));
        let driver = Driver::new(Arc::clone(self), id, actor.clone(), inbox, reports);
        self.tasks.spawn(driver.run(boot));
        actor
    }

    /// The actor wants to end: from now on nothing can send to it.
    pub(super) fn closing(&self, id: SessionId) -> CancellationToken {
        let closing = CancellationToken::new();
        self.slots().insert(id, Slot::Closing(closing.clone()));
        closing
    }

    /// The actor does not end after all; it has a new inbox.
    pub(super) fn reopened(&self, id: SessionId, actor: &ActorRef, closing: &CancellationToken) {
        self.slots().insert(id, Slot::Open(actor.clone()));
        closing.cancel();
    }

    /// The actor has ended. `lease`: the fence of the lease to release.
    pub(super) fn ended(&self, id: SessionId, actor: &ActorRef, lease: Option<(ReplicaId, Fence)>) {
        let mut slots = self.slots();
        let removed = match slots.get(&id) {
            Some(Slot::Open(open)) if !open.commands.same_channel(&actor.commands) => None,
            _ => slots.remove(&id),
        };
        drop(slots);
        if let Some(Slot::Closing(closing)) = removed {
            closing.cancel();
        }
        if let Some((owner, fence)) = lease {
            let _ = self.released.send((owner, id, fence));
        }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<SessionId, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn status(&self) -> Option<&Arc<ActorStatus>> {
        match self {
            Slot::Open(actor) => Some(&actor.status),
            Slot::Closing(_) => None,
        }
    }
}

impl ActorRef {
    pub(super) fn status(&self) -> &ActorStatus {
        &self.status
    }

    /// The same actor with a new inbox.
    pub(super) fn with_inbox(self) -> (Self, mpsc::Receiver<Box<Envelope>>) {
        let (commands, inbox) = mpsc::channel(INBOX);
        (Self { commands, ..self }, inbox)
    }
}

/// Releases leases in batches: one write for all actors that ended meanwhile. After the stop at once.
async fn release(
    store: Weak<dyn Store>,
    mut to_release: mpsc::UnboundedReceiver<(ReplicaId, SessionId, Fence)>,
    stop: CancellationToken,
) {
    const PAUSE: Duration = Duration::from_secs(1);
    let mut ended = Vec::new();
    while to_release.recv_many(&mut ended, 4096).await > 0 {
        let Some(store) = store.upgrade() else { return };
        let mut leases: HashMap<ReplicaId, Vec<_>> = HashMap::new();
        for (owner, session, fence) in ended.drain(..) {
            leases.entry(owner).or_default().push((session, fence));
        }
        for (owner, sessions) in leases {
            // Harmless: a lease that is not released ends with this process.
            if let Err(error) = store.release(owner, sessions).await {
                tracing::debug!(%error, "cannot release leases");
            }
        }
        drop(store);
        // A replica that stops holds no lease longer than it must: others wait for its sessions.
        let _ = tokio::time::timeout(PAUSE, stop.cancelled()).await;
    }
}
