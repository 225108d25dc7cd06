//! Several stores on one PostgreSQL database, as several replicas have: races that one process cannot
//! have with itself.

use std::sync::Arc;

use bowline_sbp::access::{CredentialId, OWNER, Role, Scopes};
use bowline_sbp::budget::OwnLimits;
use bowline_sbp::id::{MemoryId, SessionId, UserId};
use bowline_store::postgres::Postgres;
use bowline_store::{
    Error, MemoryKind, MemoryOwner, NewImport, NewMemory, TokenHash, User, UserKey,
};
use uuid::Uuid;

use crate::fixture::*;
use crate::live::*;
use crate::postgres_server::{config, fresh_url};

/// Three stores on a fresh database.
async fn replicas() -> [S; 3] {
    let url = fresh_url().await;
    let mut stores = Vec::new();
    for _ in 0..3 {
        let store: S = Arc::new(Postgres::open(&config(&url)).await.unwrap());
        stores.push(store);
    }
    stores.try_into().unwrap_or_else(|_| unreachable!("three"))
}

/// Repeats what found no free connection: nothing was stored.
macro_rules! until_served {
    ($attempt:expr) => {
        loop {
            match $attempt.await {
                Err(Error::Unavailable(_)) => tokio::task::yield_now().await,
                outcome => break outcome,
            }
        }
    };
}

/// Runs these tasks at once; returns their results.
async fn at_once<T: Send + 'static>(
    tasks: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_of_a_thousand_imports_at_three_replicas_one_succeeds() {
    let stores = replicas().await;
    let origin = stores[0].import(import_of("elsewhere", 2)).await.unwrap().session.id;
    let export = stores[0].keep_export(export_of(origin)).await.unwrap().id;
    let race = |n: usize| {
        let store = Arc::clone(&stores[n % 3]);
        async move {
            let import =
                NewImport { export_id: Some(export), consume: true, ..import_of("elsewhere", 2) };
            let made = until_served!(store.import(import.clone()));
            made.map(|made| made.session.id)
        }
    };
    let outcomes = at_once((0..1000).map(race)).await;
    let won: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
    let imported = stores[1].export(export).await.unwrap().unwrap().0.imported.unwrap().1;
    assert_eq!(won, [&imported]);
    let others = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    assert!(others.into_iter().all(|refused| *refused == Error::Consumed));
    assert_eq!(all_sessions(&stores[2]).await.len(), 2, "the losers left nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_of_many_imports_and_forks_under_one_key_each_returns_the_first() {
    let stores = replicas().await;
    let origin = stores[0].import(import_of("elsewhere", 2)).await.unwrap().session.id;
    let export = stores[0].keep_export(export_of(origin)).await.unwrap().id;
    let imports = at_once((0..30).map(|n| {
        let store = Arc::clone(&stores[n % 3]);
        async move {
            let mut import = import_of("elsewhere", 2);
            (import.export_id, import.consume) = (Some(export), true);
            import.key = Some(key("s", "import", 1));
            until_served!(store.import(import.clone())).unwrap()
        }
    }));
    let forks = at_once((0..30).map(|n| {
        let store = Arc::clone(&stores[n % 3]);
        async move {
            let mut fork = fork_of(origin, None);
            fork.key = Some(key("s", "fork", 1));
            until_served!(store.fork(fork.clone())).unwrap()
        }
    }));
    let (imports, forks) = tokio::join!(imports, forks);
    for made in [imports, forks] {
        assert_eq!(made.iter().filter(|made| !made.replayed).count(), 1);
        assert!(made.iter().all(|other| other.session.id == made[0].session.id));
    }
    assert_eq!(all_sessions(&stores[0]).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_forks_that_are_made_while_their_origin_is_deleted_lose_nothing() {
    let stores = replicas().await;
    for _ in 0..8 {
        let origin = stores[0].import(import_of("elsewhere", 6)).await.unwrap().session.id;
        let whole = texts(&stores[0], origin).await;
        let forks = at_once((0..12).map(|n| {
            let store = Arc::clone(&stores[n % 3]);
            async move {
                let step = n as u64 % 7;
                let fork = fork_of(origin, Some(step));
                let made = until_served!(store.fork(fork.clone()));
                (step, made.map(|made| made.session.id))
            }
        }));
        let deleting = delete(&stores[1], origin);
        let (forks, ()) = tokio::join!(forks, deleting);
        let mut made = Vec::new();
        for (step, fork) in forks {
            match fork {
                Ok(fork) => {
                    assert_eq!(texts(&stores[2], fork).await, whole[..2 * step as usize]);
                    made.push(fork);
                }
                Err(refused) => assert_eq!(refused, Error::NoSession),
            }
        }
        // The last forks of what is left of it, deleted at once.
        delete_at_once(&stores, made).await;
    }
    assert_nothing_left(&stores[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_a_family_that_is_deleted_at_once_leaves_nothing_over() {
    let stores = replicas().await;
    for _ in 0..8 {
        let root = stores[0].import(import_of("elsewhere", 3)).await.unwrap().session.id;
        let mut family = vec![root];
        for n in 0..5u64 {
            let of = family[n as usize / 2];
            // All of them have at least two steps.
            let fork = stores[0].fork(fork_of(of, Some(1 + n % 2))).await.unwrap().session.id;
            take_turn(&stores[0], fork, "more").await;
            family.push(fork);
        }
        assert!(stores[0].index(1000).await.unwrap());
        delete_at_once(&stores, family).await;
    }
    assert_nothing_left(&stores[0]).await;
}

async fn delete_at_once(stores: &[S; 3], sessions: Vec<SessionId>) {
    let gone = sessions.into_iter().zip(stores.iter().cycle()).map(|(id, store)| {
        let store = Arc::clone(store);
        async move { delete(&store, id).await }
    });
    at_once(gone.collect::<Vec<_>>()).await;
}

/// Nothing is stored of any session, and nothing is left to be indexed.
async fn assert_nothing_left(store: &S) {
    assert!(all_sessions(store).await.is_empty());
    assert!(store.index(0).await.unwrap(), "no trunk has entries");
    let words = ["ask", "more", "1"].map(|word| vec![word.to_owned()]);
    for words in words {
        assert!(store.search(OWNER, words, 50).await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_index_at_once_index_everything_once() {
    let stores = replicas().await;
    for _ in 0..20 {
        stores[0].import(import_of("elsewhere", 20)).await.unwrap();
    }
    let index = |n: usize| {
        let store = Arc::clone(&stores[n % 3]);
        async move { store.index(1000).await.unwrap() }
    };
    at_once((0..9).map(index)).await;
    assert!(stores[1].index(1000).await.unwrap());
    let found = stores[2].search(OWNER, vec!["ask".into(), "20".into()], 50).await.unwrap();
    assert_eq!(found.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_devices_and_limits_are_kept_by_all_replicas_together() {
    let stores = replicas().await;
    let user = |n: u128| User {
        id: UserId(Uuid::from_u128(n)),
        name: if n.is_multiple_of(2) { "ada".into() } else { "ADA".into() },
        role: Role::Member,
        created_at: at(),
        disabled_at: None,
        limits: OwnLimits::default(),
    };
    let added = at_once((1..13u128).map(|n| {
        let (store, user) = (Arc::clone(&stores[n as usize % 3]), user(n));
        async move { until_served!(store.add_user(user.clone())) }
    }))
    .await;
    assert_eq!(added.iter().filter(|added| added.is_ok()).count(), 1);
    assert!(added.into_iter().filter_map(Result::err).all(|error| error == Error::NameTaken));

    let key = |n: u8| UserKey {
        id: CredentialId::from_bytes([n; 8]),
        user: OWNER,
        name: format!("laptop {n}"),
        secret: TokenHash([n; 32]),
        device: Some([7; 32]),
        scopes: Scopes::of(&[]),
        agents: Vec::new(),
        models: Vec::new(),
        limits: OwnLimits::default(),
        created_at: at(),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    };
    let replaced = at_once((1..13).map(|n| {
        let (store, key) = (Arc::clone(&stores[usize::from(n) % 3]), key(n));
        async move { until_served!(store.add_key(key.clone())).unwrap() }
    }))
    .await;
    assert_eq!(replaced.iter().filter(|replaced| replaced.is_none()).count(), 1);
    let keys = stores[0].keys(Some(OWNER)).await.unwrap();
    assert_eq!(keys.iter().filter(|key| key.revoked_at.is_none()).count(), 1);

    let agent = MemoryOwner { user: OWNER, agent: "a".parse().unwrap() };
    let remembered = at_once((0..12).map(|n| {
        let (store, agent) = (Arc::clone(&stores[n % 3]), agent.clone());
        let facts: Vec<_> = (0..1000).map(|m| fact(&format!("{n} {m}"))).collect();
        async move { until_served!(store.remember(agent.clone(), facts.clone(), false)) }
    }))
    .await;
    let full =
        |outcome: &Result<_, Error>| *outcome.as_ref().err().unwrap() == Error::MemoryFull(10_000);
    assert_eq!(remembered.iter().filter(|outcome| outcome.is_ok()).count(), 10);
    assert!(remembered.iter().filter(|outcome| outcome.is_err()).all(full));
    assert_eq!(stores[2].memories(agent, None, 20_000).await.unwrap().len(), 10_000);
}

fn fact(text: &str) -> NewMemory {
    NewMemory {
        id: MemoryId(Uuid::now_v7()),
        kind: MemoryKind::Semantic,
        text: text.into(),
        session_id: None,
        at: at(),
    }
}

#[tokio::test]
async fn texts_with_nul_are_stored_unchanged() {
    let [store, ..] = replicas().await;
    let odd = "a\0b\u{1}c\u{1}0";
    let agent = MemoryOwner { user: OWNER, agent: "a".parse().unwrap() };
    let kept = store.remember(agent.clone(), vec![fact(odd), fact("a0b")], false).await.unwrap();
    assert_eq!(kept[0].text, odd);
    assert_eq!(store.recall(agent, vec!["a".into()], 9).await.unwrap()[0].text, odd);
    let mut import = import_of(odd, 1);
    import.detail = serde_json::json!({"label": odd, "reason": "x", "kept": odd}).to_string();
    import.title = Some(odd.into());
    let session = store.import(import).await.unwrap().session;
    assert_eq!(session.titles.given.as_deref(), Some(odd));
    let mut export = export_of(session.id);
    export.label = Some(odd.into());
    assert_eq!(store.keep_export(export).await.unwrap().label.as_deref(), Some(odd));
    delete(&store, session.id).await;
    let family = store.family(odd.into(), OWNER, 9).await.unwrap();
    assert_eq!(family.edges[0].origin, odd);
    let detail = serde_json::json!({"kept": odd}).to_string();
    assert_eq!(family.edges[0].detail, detail, "what was said is gone, the rest is as it was");
}
