//! PostgreSQL alone: batches, lost connections, restarts, leases by the clock of the database.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::session::Command;
use bowline_store::postgres::Postgres;
use bowline_store::{Commit, CommitError, NewSession, OpenError};

use crate::fixture::*;
use crate::leases::{append, load, owned, replica};
use crate::live::*;
use crate::postgres_server::{Server, config, connected, fresh_url, shared, until};

async fn open(url: &str) -> S {
    Arc::new(Postgres::open(&config(url)).await.unwrap())
}

/// Commits until the answer is certain; the same commit again, as an actor does.
async fn insist(store: &S, commit: &Arc<Commit>) {
    until(async || match store.commit(Arc::clone(commit)).await {
        Ok(()) => true,
        Err(CommitError::NotStored(_) | CommitError::Unknown(_)) => false,
        Err(other) => panic!("{other:?}"),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_one_bad_commit_of_a_batch_fails_nobody_else() {
    let store = open(&fresh_url().await).await;
    let mut first = Live::new(&store).await;
    first.submit_as(request("a"), Some(key("s", "taken", 1))).await;
    let mut commits = Vec::new();
    for n in 0..24 {
        let mut live = Live::new(&store).await;
        let name = if n % 8 == 3 { "taken".to_owned() } else { format!("free {n}") };
        let taken = submit(new_turn(), request("b"), Some(key("s", &name, 1)));
        // Not looked up: the other request came in between.
        let input = bowline_sbp::session::Input::Command {
            id: bowline_sbp::session::CommandId(1),
            command: Box::new(Command::Submit(taken)),
            known: None,
        };
        commits.push((n % 8 == 3, live.prepare(vec![input])));
    }
    let sent = commits.into_iter().map(|(is_bad, commit)| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { (is_bad, store.commit(commit).await) })
    });
    for task in sent.collect::<Vec<_>>() {
        let (is_bad, answer) = task.await.unwrap();
        match is_bad {
            true => assert!(matches!(answer, Err(CommitError::NotStored(_))), "{answer:?}"),
            false => assert_eq!(answer, Ok(())),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_lost_connections_never_make_a_false_answer_and_nothing_is_applied_twice() {
    let url = fresh_url().await;
    let store = open(&url).await;
    let me = replica(&store).await;
    let killer = connected(&url).await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let killing = tokio::spawn({
        let stop = Arc::clone(&stop);
        async move {
            let mut killed = 0i64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                           WHERE application_name = 'bowline' AND datname = current_database()";
                killed += killer.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
                tokio::time::sleep(Duration::from_millis(7)).await;
            }
            killed
        }
    });
    let id = {
        let new = new_session();
        until(async || store.create_session(new.clone(), None).await.is_ok()).await;
        new.id
    };
    let mut loaded = loop {
        if let Ok(Some(loaded)) = store.load(id).await {
            break loaded;
        }
    };
    for n in 0..60 {
        let mut commit = append(&loaded, me, &n.to_string());
        if n == 0 {
            Arc::make_mut(&mut commit).lease.take = true;
        }
        insist(&store, &commit).await;
        loaded.head = commit.head.clone();
        loaded.version += 1;
        loaded.fence = 1;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(killing.await.unwrap() > 0);
    let expected: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    assert_eq!(texts(&open(&url).await, id).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_commits_go_on_by_themselves_after_a_crash_of_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), true);
    let url = server.new_database("template0").await;
    let store = open(&url).await;
    let me = replica(&store).await;
    let mut loaded = owned(&store, me).await;
    for _ in 0..2 {
        server.kill();
        let next = append(&loaded, me, "while it is down");
        let answer = store.commit(Arc::clone(&next)).await;
        assert!(
            matches!(answer, Err(CommitError::NotStored(_) | CommitError::Unknown(_))),
            "{answer:?}"
        );
        server.up();
        insist(&store, &next).await;
        until(async || store.renew(me).await == Ok(true)).await;
        loaded = load(&store, loaded.id).await;
    }
    let all = texts(&store, loaded.id).await;
    assert_eq!(all, ["first", "while it is down", "while it is down"]);
}

#[tokio::test]
async fn g19_only_an_expired_lease_that_still_ends_as_seen_is_declared_dead() {
    let store = open(&fresh_url().await).await;
    let (me, other) = (replica(&store).await, replica(&store).await);
    let lease = async |of| {
        let all = store.replicas().await.unwrap();
        all.into_iter().find(|lease| lease.id == of)
    };
    let early = lease(me).await.unwrap().expires_at.unwrap();
    assert!(!store.declare_dead(me, early).await.unwrap(), "it has not expired");
    assert!(store.renew(me).await.unwrap());
    until(async || lease(me).await.unwrap().has_expired).await;
    assert!(!store.declare_dead(me, early).await.unwrap(), "it was renewed since");
    let seen = lease(me).await.unwrap().expires_at.unwrap();
    assert!(store.declare_dead(me, seen).await.unwrap());
    assert!(!store.declare_dead(me, seen).await.unwrap(), "once");
    assert!(!store.renew(me).await.unwrap());
    assert!(lease(me).await.is_none());
    assert!(store.renew(other).await.unwrap(), "an expired lease is renewed unless it is dead");
}

#[tokio::test]
async fn a_stopped_client_holds_a_session_no_longer_than_the_timeout() {
    let url = fresh_url().await;
    let store = open(&url).await;
    let me = replica(&store).await;
    let loaded = owned(&store, me).await;
    let stopped = connected(&url).await;
    stopped
        .batch_execute(
            "SET idle_in_transaction_session_timeout = '5s'; BEGIN; SELECT * FROM sessions FOR UPDATE",
        )
        .await
        .unwrap();
    let commit = append(&loaded, me, "late");
    tokio::time::timeout(Duration::from_secs(30), insist(&store, &commit)).await.unwrap();
}

#[tokio::test]
async fn texts_with_nul_are_read_back() {
    let store = open(&fresh_url().await).await;
    let new = NewSession { metadata: "{\"a\":\"\\u0000\"}".into(), ..new_session() };
    store.create_session(new.clone(), Some(key("s\0", "k\0\u{1}", 1))).await.unwrap();
    assert_eq!(store.session(new.id).await.unwrap().unwrap().metadata, new.metadata);
    let mut live = Live::of(&store, new.id).await;
    live.submit_as(request("nul \0 in it"), Some(key("s", "\0", 1))).await;
    live.answer("an\0swer").await;
    live.attach(Some("pho\0ne")).await;
    assert!(store.known(key("s\0", "k\0\u{1}", 1)).await.unwrap().is_some());
    assert!(store.known(key("s", "\0", 1)).await.unwrap().is_some());
    assert!(store.known(key("s", "0", 1)).await.unwrap().is_none());
    assert_eq!(texts(&store, new.id).await, ["nul \0 in it", "an\0swer"]);
    assert_eq!(store.devices(new.id).await.unwrap()[0].surface_id, "pho\0ne");
}

#[tokio::test]
async fn g16_of_several_that_migrate_at_once_one_does_and_all_open() {
    let url = shared().new_database("template0").await;
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { Postgres::open(&config(&url)).await.map(drop) })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn g13_a_newer_schema_and_a_foreign_database_are_left_alone() {
    let url = fresh_url().await;
    connected(&url).await.batch_execute("UPDATE bowline SET version = 1000").await.unwrap();
    let refused = Postgres::open(&config(&url)).await;
    assert!(matches!(refused, Err(OpenError::NewerSchema { found: 1000, .. })), "{refused:?}");
    let url = shared().new_database("template0").await;
    connected(&url).await.batch_execute("CREATE TABLE theirs (x int)").await.unwrap();
    let refused = Postgres::open(&config(&url)).await;
    assert!(matches!(refused, Err(OpenError::Foreign { .. })), "{refused:?}");
    // In a schema of its own there is room beside them.
    Postgres::open(&config(&format!("{url}&schema=beside"))).await.unwrap();
}
