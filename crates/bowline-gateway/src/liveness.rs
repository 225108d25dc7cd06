//! Keeps this replica's lease, and acts on the deaths of others (G14, G19).
//!
//! [`Liveness`] decides; this asks the store and calls into the live sessions. It has a thread of its
//! own: a gateway that is busy with turns must not lose its lease for that. A store whose leases never
//! end (SQLite) is asked once, at the start, and no thread is started.
//!
//! Invariants
//! - Each request to the store is answered within [`PATIENCE`], if only by its failure.
//! - [`Gate::is_open`] compares with the clock: after the process was stopped it is closed before any
//!   timer has run.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_sbp::id::SessionId;
use bowline_sbp::session::ReplicaId;
use bowline_sbp::session::liveness::{Action, Event, Liveness, Renewal, Timing};
use bowline_store::Leases;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// How long a request to the store may take. Shorter than a lease, so that another try fits in.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the search for unfinished turns may take.
const SEARCH: Duration = Duration::from_secs(10);

/// What follows for the live sessions of this process. Runs on the runtime of the gateway.
#[async_trait::async_trait]
pub(crate) trait LocalSessions: std::fmt::Debug + Send + Sync + 'static {
    /// Starts the actors of these sessions: they have unfinished turns, and no other live replica
    /// owns them. An actor that is here already and knows of no turn was loaded before the turns
    /// came: it is ended first, or it would wait for ever.
    async fn take_over(&self, sessions: Vec<SessionId>);

    /// Another replica is dead: surfaces whose sockets it held are gone, and sessions that it owned
    /// are looked for elsewhere.
    fn replica_dead(&self, replica: ReplicaId);

    /// Ends all actors without another write and closes all surfaces with 1012. Returns the id under
    /// which this process goes on; it is not registered yet.
    async fn abandon_all(&self) -> ReplicaId;

    /// The lease may end: attached surfaces are closed with 1012, none is attached, and no round is
    /// started; what runs goes on, and nothing is lost. `false`: the lease is renewed.
    fn suspend(&self, suspended: bool);
}

/// Whether this replica may start rounds and serve surfaces now.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<watch::Sender<Open>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Always,
    Until(Instant),
    No,
}

impl Gate {
    /// Open, until a lease says otherwise.
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Open::Always)))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.borrow().now()
    }

    /// Waits until it is open.
    pub(crate) async fn opened(&self) {
        // Never fails: the sender is here.
        let _ = self.0.subscribe().wait_for(|open| open.now()).await;
    }

    fn follow(&self, liveness: &Liveness) {
        let open = match liveness.serves_until() {
            Some(until) => Open::Until(until),
            None if liveness.serves(now()) => Open::Always,
            None => Open::No,
        };
        self.0.send_if_modified(|before| std::mem::replace(before, open) != open);
    }
}

impl Open {
    fn now(self) -> bool {
        match self {
            Open::Always => true,
            Open::Until(until) => now() < until,
            Open::No => false,
        }
    }
}

/// Keeps the lease of a replica that began to register itself at `sent`, until `stop`, which comes
/// after it has retired. Returns whether there is anything to keep.
pub(crate) async fn keep<S: Leases + ?Sized + 'static>(
    me: ReplicaId,
    sent: Instant,
    store: Arc<S>,
    sessions: Arc<dyn LocalSessions>,
    gate: Gate,
    stop: CancellationToken,
) -> Result<bool, KeepError> {
    let leases = store.replicas().await?;
    if leases.iter().any(|lease| lease.id == me && lease.expires_at.is_none()) {
        return Ok(false);
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let keeper = Keeper::new(store, sessions, gate, Handle::current());
    let liveness = Liveness::new(me, Timing::default(), sent);
    let run = move || runtime.block_on(keeper.run(liveness, stop));
    std::thread::Builder::new().name("bowline-liveness".into()).spawn(run)?;
    Ok(true)
}

/// Why the lease cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    Store(#[from] bowline_store::Error),
    #[error("cannot start the thread that renews the lease of this replica: {0}")]
    Thread(#[from] io::Error),
}

/// Carries out what [`Liveness`] decides.
#[derive(Debug)]
struct Keeper<S: ?Sized> {
    store: Arc<S>,
    sessions: Arc<dyn LocalSessions>,
    gate: Gate,
    /// Where the sessions live.
    gateway: Handle,
    answers: mpsc::UnboundedSender<Event>,
    answered: mpsc::UnboundedReceiver<Event>,
}

impl<S: Leases + ?Sized + 'static> Keeper<S> {
    fn new(store: Arc<S>, sessions: Arc<dyn LocalSessions>, gate: Gate, gateway: Handle) -> Self {
        let (answers, answered) = mpsc::unbounded_channel();
        Self { store, sessions, gate, gateway, answers, answered }
    }

    async fn run(mut self, mut liveness: Liveness, stop: CancellationToken) {
        let mut event = Event::Deadline;
        loop {
            let actions = liveness.handle(event, now());
            self.gate.follow(&liveness);
            for action in actions {
                self.begin(action);
            }
            event = tokio::select! {
                () = stop.cancelled() => return,
                Some(answer) = self.answered.recv() => answer,
                () = at(liveness.deadline()) => Event::Deadline,
            };
        }
    }

    fn begin(&self, action: Action) {
        let store = Arc::clone(&self.store);
        match action {
            Action::Renew(me) => self.ask(async move {
                Event::Renewed(match within(PATIENCE, "renew a lease", store.renew(me)).await {
                    Some(true) => Renewal::Extended,
                    Some(false) => Renewal::Dead,
                    None => Renewal::Failed,
                })
            }),
            Action::Look => self.ask(async move {
                Event::Looked(within(PATIENCE, "see other replicas", store.replicas()).await)
            }),
            Action::DeclareDead { replica, seen } => self.ask(async move {
                let asked = store.declare_dead(replica, seen);
                let dead = within(PATIENCE, "declare a replica dead", asked).await;
                if dead == Some(true) {
                    tracing::warn!(replica = %replica.0, "a replica is dead: its lease was not renewed");
                }
                Event::Declared(replica, dead == Some(true))
            }),
            Action::Register(me) => self.ask(async move {
                let asked = within(PATIENCE, "register this replica", store.register(me)).await;
                Event::Registered(asked.is_some())
            }),
            Action::TakeOver(me) => self.take_over(me),
            Action::AbandonAll => {
                tracing::warn!("this replica was declared dead: it gives up its sessions and starts anew");
                let (sessions, answers) = (Arc::clone(&self.sessions), self.answers.clone());
                self.gateway.spawn(async move {
                    let _ = answers.send(Event::Abandoned(sessions.abandon_all().await));
                });
            }
            Action::ReplicaDead(replica) => {
                let sessions = Arc::clone(&self.sessions);
                self.gateway.spawn(async move { sessions.replica_dead(replica) });
            }
            Action::Suspend => {
                tracing::warn!("the lease of this replica cannot be renewed: it starts no more work until then");
                self.suspend(true);
            }
            Action::Resume => {
                tracing::info!("the lease of this replica is renewed");
                self.suspend(false);
            }
            Action::Rest => {}
        }
    }

    fn suspend(&self, suspended: bool) {
        // Here, not in a task: two of them could change places.
        let _runtime = self.gateway.enter();
        self.sessions.suspend(suspended);
    }

    fn take_over(&self, me: ReplicaId) {
        let (store, sessions) = (Arc::clone(&self.store), Arc::clone(&self.sessions));
        let gateway = self.gateway.clone();
        self.ask(async move {
            let found = within(SEARCH, "look for unfinished turns", store.unfinished(me)).await;
            let Some(found) = found else { return Event::TookOver(false) };
            if !found.is_empty() {
                let found = found.into_iter().map(|(id, _)| id).collect();
                let taken = gateway.spawn(async move { sessions.take_over(found).await });
                return Event::TookOver(taken.await.is_ok());
            }
            Event::TookOver(true)
        });
    }

    /// Asks the store, on the thread of this.
    fn ask(&self, request: impl Future<Output = Event> + Send + 'static) {
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let _ = answers.send(request.await);
        });
    }
}

/// The answer, if it comes in time and is no error.
async fn within<T>(
    patience: Duration,
    what: &'static str,
    asked: impl Future<Output = bowline_store::Result<T>>,
) -> Option<T> {
    match tokio::time::timeout(patience, asked).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(error)) => {
            tracing::debug!(%error, "cannot {what}");
            None
        }
        Err(_) => {
            tracing::debug!("cannot {what}: the store does not answer");
            None
        }
    }
}

/// Tokio's time, so that tests can stop it.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}
