//! With a store whose answers are given here, and a clock that moves only when all wait.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_sbp::session::Fence;
use bowline_store::{ReplicaLease, Result};
use jiff::Timestamp;
use uuid::Uuid;

use super::*;

const ME: ReplicaId = ReplicaId(Uuid::from_u128(1));
const OTHER: ReplicaId = ReplicaId(Uuid::from_u128(2));
const LEFT: SessionId = SessionId(Uuid::from_u128(7));

/// Leases by tokio's time.
#[derive(Debug)]
struct Fake {
    begun: tokio::time::Instant,
    leases: Mutex<BTreeMap<ReplicaId, (Duration, bool)>>,
    never_end: bool,
    hangs: AtomicBool,
    renewals: Mutex<Vec<ReplicaId>>,
}

impl Fake {
    fn new(never_end: bool) -> Arc<Self> {
        let leases = [ME, OTHER].map(|id| (id, (Duration::from_millis(3_250), false)));
        Arc::new(Self {
            begun: tokio::time::Instant::now(),
            leases: Mutex::new(leases.into()),
            never_end,
            hangs: AtomicBool::new(false),
            renewals: Mutex::default(),
        })
    }

    async fn answers(&self) {
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }
}

#[async_trait::async_trait]
impl Leases for Fake {
    fn is_shared(&self) -> bool {
        true
    }

    async fn register(&self, me: ReplicaId) -> Result<()> {
        let ends = self.begun.elapsed() + Duration::from_secs(3);
        self.leases.lock().unwrap().entry(me).or_insert((ends, false));
        Ok(())
    }

    async fn renew(&self, me: ReplicaId) -> Result<bool> {
        self.answers().await;
        self.renewals.lock().unwrap().push(me);
        let ends = self.begun.elapsed() + Duration::from_secs(3);
        match self.leases.lock().unwrap().get_mut(&me) {
            Some((before, false)) => *before = ends,
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn replicas(&self) -> Result<Vec<ReplicaLease>> {
        self.answers().await;
        let leases = self.leases.lock().unwrap();
        let alive = leases.iter().filter(|(_, (_, dead))| !dead);
        let lease = |(id, (ends, _)): (&ReplicaId, &(Duration, bool))| ReplicaLease {
            id: *id,
            expires_at: (!self.never_end).then(|| Timestamp::UNIX_EPOCH + *ends),
            has_expired: *ends < self.begun.elapsed(),
        };
        Ok(alive.map(lease).collect())
    }

    async fn declare_dead(&self, replica: ReplicaId, seen: Timestamp) -> Result<bool> {
        let mut leases = self.leases.lock().unwrap();
        let row = leases.get_mut(&replica).filter(|row| Timestamp::UNIX_EPOCH + row.0 == seen);
        Ok(row.is_some_and(|row| !std::mem::replace(&mut row.1, true)))
    }

    async fn retire(&self, replica: ReplicaId) -> Result<()> {
        self.leases.lock().unwrap().insert(replica, (Duration::ZERO, true));
        Ok(())
    }

    async fn owner(&self, _: SessionId) -> Result<Option<ReplicaId>> {
        Ok(None)
    }

    async fn release(&self, _: ReplicaId, _: Vec<(SessionId, Fence)>) -> Result<()> {
        Ok(())
    }

    async fn unfinished(&self, _: ReplicaId) -> Result<Vec<(SessionId, u64)>> {
        let other_is_dead = self.leases.lock().unwrap()[&OTHER].1;
        Ok(other_is_dead.then_some((LEFT, 1)).into_iter().collect())
    }
}

/// Notes what it is told.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[async_trait::async_trait]
impl LocalSessions for Told {
    async fn take_over(&self, sessions: Vec<SessionId>) {
        assert_eq!(sessions, [LEFT]);
        self.note("take over");
    }

    fn replica_dead(&self, replica: ReplicaId) {
        assert_eq!(replica, OTHER);
        self.note("the other is dead");
    }

    async fn abandon_all(&self) -> ReplicaId {
        self.note("abandon all");
        ReplicaId(Uuid::from_u128(3))
    }

    fn suspend(&self, suspended: bool) {
        self.note(if suspended { "suspend" } else { "resume" });
    }
}

fn start(store: &Arc<Fake>) -> (Arc<Told>, Gate) {
    let (told, gate) = (Arc::new(Told::default()), Gate::new());
    let sessions: Arc<dyn LocalSessions> = Arc::<Told>::clone(&told);
    let keeper = Keeper::new(Arc::clone(store), sessions, gate.clone(), Handle::current());
    let liveness = Liveness::new(ME, Timing::default(), now());
    tokio::spawn(keeper.run(liveness, CancellationToken::new()));
    (told, gate)
}

async fn after(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn g19_a_replica_that_does_not_renew_is_declared_dead_and_its_turns_are_taken_over() {
    let store = Fake::new(false);
    let (told, gate) = start(&store);
    // Its lease ends at 3.25 s, the first look after that is at 3.5 s, the second one second later.
    after(4_400).await;
    assert_eq!(told.take(), Vec::<String>::new());
    after(200).await;
    let mut all = told.take();
    all.sort();
    assert_eq!(all, ["take over", "the other is dead"]);
    assert!(gate.is_open());
    assert_eq!(store.renewals.lock().unwrap().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn g14_while_the_store_does_not_answer_nothing_is_started_and_nothing_is_given_up() {
    let store = Fake::new(false);
    let (told, gate) = start(&store);
    after(1_000).await;
    store.hangs.store(true, Ordering::Relaxed);
    // It renewed at 0.75 s, and serves 2.75 s from then.
    after(2_450).await;
    assert!(gate.is_open());
    after(100).await;
    assert!(!gate.is_open());
    after(20_000).await;
    assert_eq!(told.take(), ["suspend"]);
    store.hangs.store(false, Ordering::Relaxed);
    gate.opened().await;
    after(10).await;
    assert_eq!(told.take()[0], "resume");
}

#[tokio::test(start_paused = true)]
async fn g19_a_replica_that_was_declared_dead_starts_anew() {
    let store = Fake::new(false);
    let (told, gate) = start(&store);
    after(100).await;
    store.retire(ME).await.unwrap();
    after(1_000).await;
    assert_eq!(told.take(), ["suspend", "abandon all", "resume"]);
    assert!(gate.is_open());
    let fresh = ReplicaId(Uuid::from_u128(3));
    assert_eq!(store.renewals.lock().unwrap().last(), Some(&fresh));
}

#[tokio::test]
async fn where_leases_never_end_no_thread_is_started() {
    let store = Fake::new(true);
    let (told, gate) = (Arc::new(Told::default()), Gate::new());
    let sessions: Arc<dyn LocalSessions> = Arc::<Told>::clone(&told);
    let stop = CancellationToken::new();
    let kept = keep(ME, now(), store, sessions, gate.clone(), stop).await.unwrap();
    assert!(!kept && gate.is_open());
}
