//! Counts of requests and running turns, exchanged between replicas.
//!
//! Each replica reports its own counts where they changed, and adds up what the others have reported. A
//! replica that dies is not counted any more when it is declared dead.

use std::collections::HashMap;

use bowline_sbp::session::ReplicaId;
use bowline_store::{Counted, LiveCount, Result, Store};
use jiff::Timestamp;

use super::{Budgets, locked, minute_of};

/// What this replica has reported, and as whom.
#[derive(Debug, Default)]
pub(in crate::engine) struct Reported {
    me: Option<ReplicaId>,
    counts: HashMap<Counted, LiveCount>,
}

/// What the other replicas count, added up.
#[derive(Debug, Default)]
pub(super) struct OfOthers {
    requests: HashMap<(Counted, i64), u64>,
    turns: HashMap<Counted, u64>,
}

impl OfOthers {
    fn add_up(counts: Vec<LiveCount>) -> Self {
        let mut all = Self::default();
        for LiveCount { of, minute, requests, turns } in counts {
            *all.turns.entry(of.clone()).or_default() += turns;
            *all.requests.entry((of, minute)).or_default() += requests;
        }
        all
    }

    pub(super) fn requests(&self, of: &Counted, minute: i64) -> u64 {
        // Alone, nothing is copied to look it up.
        if self.requests.is_empty() {
            return 0;
        }
        self.requests.get(&(of.clone(), minute)).copied().unwrap_or_default()
    }

    pub(super) fn turns(&self, of: &Counted) -> u64 {
        self.turns.get(of).copied().unwrap_or_default()
    }
}

impl Budgets {
    /// Reports what has changed since the last time, and reads what others have reported.
    pub(in crate::engine) async fn exchange(
        &self,
        store: &dyn Store,
        reported: &mut Reported,
        me: ReplicaId,
        now: Timestamp,
    ) -> Result<()> {
        // Under a new id everything is new.
        if reported.me.replace(me) != Some(me) {
            reported.counts.clear();
        }
        let minute = minute_of(now);
        let counts = self.counts(minute);
        let mut changed: Vec<_> = counts
            .iter()
            .filter(|(of, count)| reported.counts.get(of) != Some(count))
            .map(|(_, count)| count.clone())
            .collect();
        let ended = reported.counts.keys().filter(|of| !counts.contains_key(of));
        changed.extend(ended.map(|of| nothing(of, minute)));
        if !changed.is_empty() {
            store.report_counts(me, changed).await?;
        }
        reported.counts = counts;
        // The clock of another replica may be behind.
        let others = store.counts_of_others(me, minute - 1).await?;
        *locked(&self.others) = OfOthers::add_up(others);
        Ok(())
    }

    /// What is counted here in that minute.
    fn counts(&self, minute: i64) -> HashMap<Counted, LiveCount> {
        let mut counts = HashMap::new();
        {
            let own = locked(&self.minute);
            for (of, requests) in own.requests.iter().filter(|_| own.number == minute) {
                let count = LiveCount { requests: *requests, ..nothing(of, minute) };
                counts.insert(of.clone(), count);
            }
        }
        for (of, turns) in &*locked(&self.running) {
            counts.entry(of.clone()).or_insert_with(|| nothing(of, minute)).turns = *turns;
        }
        counts
    }
}

fn nothing(of: &Counted, minute: i64) -> LiveCount {
    LiveCount { of: of.clone(), minute, requests: 0, turns: 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bowline_sbp::access::CredentialId;
    use bowline_sbp::budget::{BudgetLimits, LimitOf, OwnLimits, Spender};
    use bowline_sbp::id::UserId;
    use bowline_store::Leases as _;
    use bowline_store::sqlite::Sqlite;
    use uuid::Uuid;

    use super::super::Limits;
    use super::*;
    use crate::config::BudgetsConfig;

    struct Replica {
        budgets: Budgets,
        reported: Reported,
        id: ReplicaId,
        store: Arc<Sqlite>,
    }

    impl Replica {
        async fn new(store: &Arc<Sqlite>, id: u128) -> Self {
            let id = ReplicaId(Uuid::from_u128(id));
            store.register(id).await.unwrap();
            let budgets = Budgets::new(&BudgetsConfig::default());
            Self { budgets, reported: Reported::default(), id, store: Arc::clone(store) }
        }

        async fn exchange(&mut self, now: Timestamp) {
            let Self { budgets, reported, id, store } = self;
            budgets.exchange(&**store, reported, *id, now).await.unwrap();
        }

        fn requests(&self, times: usize, now: Timestamp) -> Result<(), LimitOf> {
            let request = || self.budgets.request(&limits(), &spender(), now);
            (0..times).try_for_each(|_| request()).map_err(|exceeded| exceeded.of)
        }
    }

    fn limits() -> Limits {
        let read = |text: &str| {
            let own: OwnLimits = text.split(' ').map(str::parse).collect::<Result<_, _>>().unwrap();
            own.over(BudgetLimits::default())
        };
        Limits { user: read("requests=10 turns=2"), key: read("requests=6 turns=1") }
    }

    fn spender() -> Spender {
        let key = Some(CredentialId::from_bytes([1; 8]));
        Spender { user: UserId(Uuid::from_u128(1)), key }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(600 + second).unwrap()
    }

    async fn two() -> (tempfile::TempDir, Replica, Replica) {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Sqlite::open(folder.path()).unwrap().for_several_gateways());
        let (a, b) = (Replica::new(&store, 1).await, Replica::new(&store, 2).await);
        (folder, a, b)
    }

    #[tokio::test]
    async fn requests_of_a_minute_are_those_of_all_replicas() {
        let (_folder, mut a, mut b) = two().await;
        assert_eq!(a.requests(4, at(0)), Ok(()));
        a.exchange(at(1)).await;
        b.exchange(at(1)).await;
        assert_eq!(b.requests(2, at(2)), Ok(()));
        assert_eq!(b.requests(1, at(2)), Err(LimitOf::Key));
        b.exchange(at(3)).await;
        a.exchange(at(3)).await;
        assert_eq!(a.requests(1, at(4)), Err(LimitOf::Key));
        // The next minute begins for all.
        assert_eq!(a.requests(3, at(60)), Ok(()));
        a.exchange(at(61)).await;
        b.exchange(at(61)).await;
        assert_eq!(b.requests(3, at(61)), Ok(()));
        assert_eq!(b.requests(1, at(61)), Err(LimitOf::Key));
    }

    #[tokio::test]
    async fn turns_that_run_are_those_of_all_living_replicas() {
        let (_folder, mut a, mut b) = two().await;
        let run = |replica: &Replica| {
            let run = replica.budgets.run(&limits(), &spender(), at(0));
            run.map_err(|exceeded| exceeded.of)
        };
        let running = run(&a).unwrap();
        a.exchange(at(1)).await;
        b.exchange(at(1)).await;
        assert_eq!(run(&b).map(drop), Err(LimitOf::Key));
        // However long it runs, and under whichever name.
        a.id = ReplicaId(Uuid::from_u128(3));
        a.store.register(a.id).await.unwrap();
        a.store.retire(ReplicaId(Uuid::from_u128(1))).await.unwrap();
        a.exchange(at(300)).await;
        b.exchange(at(300)).await;
        assert_eq!(run(&b).map(drop), Err(LimitOf::Key));
        drop(running);
        a.exchange(at(301)).await;
        b.exchange(at(301)).await;
        let running = run(&b).unwrap();
        b.exchange(at(302)).await;
        a.exchange(at(302)).await;
        assert_eq!(run(&a).map(drop), Err(LimitOf::Key));
        // A replica that is gone runs nothing.
        a.store.retire(b.id).await.unwrap();
        a.exchange(at(303)).await;
        assert!(run(&a).is_ok());
        drop(running);
    }
}
