//! Which sessions have an actor here. One is made when it is needed, and goes when nothing lives in
//! its session.
//!
//! Lock order: the table alone, for a few instructions, never across an `await`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bowline_sbp::id::SessionId;
use bowline_sbp::session::{Fence, LiveState, NewSession, ReplicaId, SessionLimits};
use bowline_store::Store;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::driver::{Boot, Driver, Envelope, TaskReport};
use super::handle::SessionHandle;
use super::history::Budget;
use super::text::TextBuffer;
use super::work::Workers;

/// Commands that wait in one inbox before their senders have to wait themselves.
const INBOX: usize = 256;
/// Actors that stay a while although nothing lives in their session.
const LINGERING: usize = 1024;

/// Bounds of live sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) session: SessionLimits,
    /// Memory for the histories of sessions in use, in bytes.
    pub(crate) history_memory: usize,
    /// How long an actor stays after the last thing that lived in its session.
    pub(crate) linger: Duration,
}

/// All live sessions of this process.
#[derive(Debug)]
pub(crate) struct LiveSessions {
    pub(super) me: ReplicaId,
    pub(super) store: Arc<dyn Store>,
    pub(super) workers: Arc<dyn Workers>,
    pub(super) bounds: Bounds,
    pub(super) histories: Arc<Budget>,
    pub(super) lingering: Arc<Semaphore>,
    pub(super) stop: CancellationToken,
    slots: Mutex<HashMap<SessionId, Slot>>,
    released: mpsc::UnboundedSender<(SessionId, Fence)>,
    tasks: TaskTracker,
}

#[derive(Debug)]
enum Slot {
    Open(ActorRef),
    /// Its actor is about to end, or to go on with what came meanwhile.
    Closing(CancellationToken),
}

/// The way to an actor.
#[derive(Debug, Clone)]
pub(super) struct ActorRef {
    pub(super) commands: mpsc::Sender<Box<Envelope>>,
    pub(super) facts: mpsc::UnboundedSender<Box<TaskReport>>,
    pub(super) live: Arc<watch::Sender<Live>>,
    status: Arc<ActorStatus>,
}

/// What an actor holds, for those who watch the process.
#[derive(Debug, Default)]
pub(super) struct ActorStatus {
    pub(super) turns: AtomicUsize,
    /// Something lives in its session.
    pub(super) busy: AtomicBool,
    /// Something that happened waits for the store to take it.
    pub(super) trouble: AtomicBool,
}

/// A session at one instant, and the text of its running turn.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    pub(crate) state: Arc<LiveState>,
    pub(crate) text: Option<Arc<TextBuffer>>,
}

impl LiveSessions {
    pub(crate) fn new(
        me: ReplicaId,
        store: Arc<dyn Store>,
        workers: Arc<dyn Workers>,
        bounds: Bounds,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let (released, to_release) = mpsc::unbounded_channel();
        tokio::spawn(release(Arc::downgrade(&store), me, to_release));
        Arc::new(Self {
            me,
            store,
            workers,
            histories: Arc::new(Budget::new(bounds.history_memory)),
            bounds,
            lingering: Arc::new(Semaphore::new(LINGERING)),
            stop,
            slots: Mutex::default(),
            released,
            tasks: TaskTracker::new(),
        })
    }

    /// This process, as other owners and edges know it.
    pub(crate) fn me(&self) -> ReplicaId {
        self.me
    }

    pub(crate) fn handle(self: &Arc<Self>, id: SessionId) -> SessionHandle {
        SessionHandle::new(Arc::clone(self), id)
    }

    /// Takes up sessions whose turns nobody works on (SBP-L2-13, G13). Gives the number of turns.
    pub(crate) async fn recover(self: &Arc<Self>) -> bowline_store::Result<u64> {
        self.store.register(self.me).await?;
        let left = self.store.unfinished(self.me).await?;
        for (id, _) in &left {
            self.actor(*id).await;
        }
        Ok(left.iter().map(|(_, turns)| turns).sum())
    }

    /// What is going on in a session, if it has an actor.
    pub(crate) fn look_at(&self, id: SessionId) -> Option<Arc<LiveState>> {
        match self.slots().get(&id)? {
            Slot::Open(actor) => Some(Arc::clone(&actor.live.borrow().state)),
            Slot::Closing(_) => None,
        }
    }

    /// Every session that has an actor, and what is going on in it.
    pub(crate) fn look_at_all(&self) -> Vec<(SessionId, Arc<LiveState>)> {
        let slots = self.slots();
        let open = slots.iter().filter_map(|(id, slot)| match slot {
            Slot::Open(actor) => Some((*id, Arc::clone(&actor.live.borrow().state))),
            Slot::Closing(_) => None,
        });
        open.collect()
    }

    /// Turns that run or wait, and sessions in which something lives.
    pub(crate) fn at_work(&self) -> (usize, usize) {
        let slots = self.slots();
        let status = slots.values().filter_map(Slot::status);
        status.fold((0, 0), |(turns, sessions), status| {
            let busy = usize::from(status.busy.load(Ordering::Relaxed));
            (turns + status.turns.load(Ordering::Relaxed), sessions + busy)
        })
    }

    /// Whether something that happened waits for the store to take it.
    pub(crate) fn is_in_trouble(&self) -> bool {
        let in_trouble = |status: &Arc<ActorStatus>| status.trouble.load(Ordering::Relaxed);
        self.slots().values().filter_map(Slot::status).any(in_trouble)
    }

    /// Waits until every actor has ended. New ones are refused from the stop on.
    pub(crate) async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Writes no more: what is left of this process is refused, and its sessions may be taken.
    pub(crate) async fn retire(&self) {
        if let Err(error) = self.store.retire(self.me).await {
            tracing::warn!(%error, "the end of this process could not be written");
        }
    }

    /// The way to a session's actor, which is started if there is none.
    pub(super) async fn actor(self: &Arc<Self>, id: SessionId) -> ActorRef {
        loop {
            let closing = {
                let mut slots = self.slots();
                match slots.get(&id) {
                    Some(Slot::Open(actor)) => return actor.clone(),
                    Some(Slot::Closing(closing)) => closing.clone(),
                    None => return self.start(&mut slots, id, Boot::Load),
                }
            };
            closing.cancelled().await;
        }
    }

    /// Starts the actor of a session that its first turn makes.
    pub(super) fn make(self: &Arc<Self>, new: NewSession) -> ActorRef {
        let id = new.id;
        self.start(&mut self.slots(), id, Boot::Make(Box::new(new)))
    }

    fn start(
        self: &Arc<Self>,
        slots: &mut HashMap<SessionId, Slot>,
        id: SessionId,
        boot: Boot,
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

    /// The actor wants to end: nobody gets to it from now on.
    pub(super) fn closing(&self, id: SessionId) -> CancellationToken {
        let closing = CancellationToken::new();
        self.slots().insert(id, Slot::Closing(closing.clone()));
        closing
    }

    /// The actor goes on after all, with another inbox.
    pub(super) fn reopened(&self, id: SessionId, actor: &ActorRef, closing: &CancellationToken) {
        self.slots().insert(id, Slot::Open(actor.clone()));
        closing.cancel();
    }

    /// The actor has ended. `lease`: what it gives back.
    pub(super) fn ended(&self, id: SessionId, actor: &ActorRef, lease: Option<Fence>) {
        let mut slots = self.slots();
        let removed = match slots.get(&id) {
            Some(Slot::Open(open)) if !open.commands.same_channel(&actor.commands) => None,
            _ => slots.remove(&id),
        };
        drop(slots);
        if let Some(Slot::Closing(closing)) = removed {
            closing.cancel();
        }
        if let Some(fence) = lease {
            let _ = self.released.send((id, fence));
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

    /// The same with another inbox.
    pub(super) fn with_inbox(self) -> (Self, mpsc::Receiver<Box<Envelope>>) {
        let (commands, inbox) = mpsc::channel(INBOX);
        (Self { commands, ..self }, inbox)
    }
}

impl Live {
    /// Before anything is known.
    pub(super) fn none() -> Self {
        let state = LiveState {
            status: bowline_sbp::lifecycle::Status::Idle,
            head: 0,
            gone: false,
            handed_to: None,
            turns: Vec::new(),
            surfaces: Vec::new(),
            closed: Vec::new(),
            calls: Vec::new(),
            approvals: Vec::new(),
        };
        Self { state: Arc::new(state), text: None }
    }
}

/// Gives leases back, many at once: it is one write for all that ended meanwhile.
async fn release(
    store: Weak<dyn Store>,
    me: ReplicaId,
    mut to_release: mpsc::UnboundedReceiver<(SessionId, Fence)>,
) {
    const PAUSE: Duration = Duration::from_secs(1);
    let mut sessions = Vec::new();
    while to_release.recv_many(&mut sessions, 4096).await > 0 {
        let Some(store) = store.upgrade() else { return };
        // Not worth a word: a lease that is not given back ends with this process.
        if let Err(error) = store.release(me, std::mem::take(&mut sessions)).await {
            tracing::debug!(%error, "leases could not be given back");
        }
        drop(store);
        tokio::time::sleep(PAUSE).await;
    }
}
