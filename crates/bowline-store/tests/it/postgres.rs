//! PostgreSQL alone: batches, lost connections, restarts, leases by the clock of the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_sbp::session::Command;
use bowline_store::postgres::{Postgres, migrate};
use bowline_store::{Commit, CommitError, Error, NewSession, OpenError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::fixture::*;
use crate::leases::{append, load, owned, replica};
use crate::live::*;
use crate::postgres_server::{Server, config, connected, fresh_url, shared, until};
use crate::roaming::{exported, using_up};

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
            true => assert!(matches!(answer, Err(CommitError::Refused(_))), "{answer:?}"),
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
    let stop = Arc::new(AtomicBool::new(false));
    let killing = tokio::spawn({
        let stop = Arc::clone(&stop);
        async move {
            let mut killed = 0i64;
            while !stop.load(Ordering::Relaxed) {
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
    stop.store(true, Ordering::Relaxed);
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

/// What is planned while the tables are small is used when they are large.
#[tokio::test]
async fn g11_commits_read_no_table_whole() {
    let url = fresh_url().await;
    let client = connected(&url).await;
    // The server knows what a backend did when that has ended.
    let ended = async |store: S| {
        store.close().await;
        drop(store);
        let sql = "SELECT 1 FROM pg_stat_activity
                   WHERE application_name = 'bowline' AND datname = current_database()";
        until(async || client.query(sql, &[]).await.unwrap().is_empty()).await;
        let sql = "SELECT sum(seq_scan)::bigint, sum(idx_scan)::bigint FROM pg_stat_user_tables
                   WHERE relname IN ('sessions', 'entries', 'turns', 'keys')";
        let row = client.query_one(sql, &[]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    let store = open(&url).await;
    let me = replica(&store).await;
    let mut loaded = owned(&store, me).await;
    let before = ended(store).await;
    let store = open(&url).await;
    for n in 0..50 {
        let commit = append(&loaded, me, &n.to_string());
        store.commit(Arc::clone(&commit)).await.unwrap();
        (loaded.head, loaded.version) = (commit.head.clone(), loaded.version + 1);
    }
    let after = ended(store).await;
    assert!(after.1 >= before.1 + 50, "{before:?} {after:?}");
    assert_eq!(after.0, before.0, "a table was read whole");
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

/// A proxy whose network is gone while its own sockets stay open: nobody is told, and no timer of TCP ends it.
async fn swallowing(url: &str) -> (String, Arc<AtomicBool>) {
    proxied(url, |_| false).await
}

/// A proxy that, while it is told to, passes on what `passes` makes of it, if that says so.
async fn proxied(url: &str, passes: fn(&mut [u8]) -> bool) -> (String, Arc<AtomicBool>) {
    let (begin, rest) = url.split_once("127.0.0.1:").unwrap();
    let (port, rest) = rest.split_once('/').unwrap();
    let server = format!("127.0.0.1:{port}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let is_on = Arc::new(AtomicBool::new(false));
    let is_told = Arc::clone(&is_on);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&server).await.unwrap();
            let ((from, to), (back_from, back_to)) = (near.into_split(), far.into_split());
            tokio::spawn(carry(from, back_to, Arc::clone(&is_told), passes));
            tokio::spawn(carry(back_from, to, Arc::clone(&is_told), passes));
        }
    });
    (format!("{begin}{address}/{rest}"), is_on)
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    is_on: Arc<AtomicBool>,
    passes: fn(&mut [u8]) -> bool,
) {
    let mut bytes = vec![0; 65536];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let read = &mut bytes[..count];
        let goes_on = !is_on.load(Ordering::Relaxed) || passes(read);
        if goes_on && to.write_all(read).await.is_err() {
            return;
        }
    }
}

/// Passes on everything, with a first word of that statement that PostgreSQL does not know.
fn spoil(bytes: &mut [u8], statement: &[u8]) -> bool {
    let found = bytes.windows(statement.len()).position(|window| window == statement);
    found.into_iter().for_each(|at| bytes[at] = b'X');
    true
}

/// Two statements of an import, each of which would be a transaction of its own.
#[tokio::test(flavor = "multi_thread")]
async fn g7_an_import_whose_transaction_did_not_begin_uses_up_no_token() {
    let (url, is_spoilt) = proxied(&fresh_url().await, |bytes| spoil(bytes, b"BEGIN\0")).await;
    let store = open(&url).await;
    let export = exported(&store).await;
    let import = using_up(export);
    is_spoilt.store(true, Ordering::Relaxed);
    let refused = store.import(import.clone()).await;
    is_spoilt.store(false, Ordering::Relaxed);
    assert!(refused.is_err(), "{refused:?}");
    let found = store.export(export).await.unwrap().unwrap();
    assert_eq!(found.0.imported, None, "used up by an import that failed");
    assert!(store.session(import.session.id).await.unwrap().is_none());
    store.import(import).await.unwrap();
}

/// Whoever ends a statement from outside may hit the `BEGIN` of statements that are on their way already.
#[tokio::test(flavor = "multi_thread")]
async fn g3_a_commit_whose_transaction_did_not_begin_writes_nothing() {
    let (url, is_spoilt) = proxied(&fresh_url().await, |bytes| spoil(bytes, b"BEGIN;")).await;
    let store = open(&url).await;
    let me = replica(&store).await;
    let loaded = owned(&store, me).await;
    let commit = append(&loaded, me, "second");
    is_spoilt.store(true, Ordering::Relaxed);
    let refused = store.commit(Arc::clone(&commit)).await;
    is_spoilt.store(false, Ordering::Relaxed);
    assert!(matches!(refused, Err(CommitError::Refused(_))), "{refused:?}");
    assert_eq!(load(&store, loaded.id).await.head, loaded.head);
    insist(&store, &commit).await;
    assert_eq!(texts(&store, loaded.id).await, ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_a_database_that_says_nothing_any_more_is_given_up_and_found_again() {
    let (url, swallows) = swallowing(&fresh_url().await).await;
    let mut config = config(&url);
    config.statement_timeout = Duration::from_secs(3);
    let store: S = Arc::new(Postgres::open(&config).await.unwrap());
    let new = new_session();
    store.create_session(new.clone(), None).await.unwrap();
    swallows.store(true, Ordering::Relaxed);
    let (read, written) = tokio::time::timeout(Duration::from_secs(120), async {
        tokio::join!(store.session(new.id), store.create_session(new_session(), None))
    })
    .await
    .expect("everybody is answered");
    assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
    assert!(matches!(written, Err(Error::Unavailable(_))), "{written:?}");
    swallows.store(false, Ordering::Relaxed);
    // No connection that was given up is used again.
    for _ in 0..6 {
        until(async || store.session(new.id).await.is_ok_and(|found| found.is_some())).await;
    }
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

/// The schema of the first release.
const FIRST: &str = include_str!("../../src/postgres/schema/first.sql");

#[tokio::test(flavor = "multi_thread")]
async fn g16_of_several_that_migrate_at_once_one_does_and_all_open() {
    for before in [0, 1] {
        let url = shared().new_database("template0").await;
        if before == 1 {
            let client = connected(&url).await;
            let marker = "CREATE TABLE bowline (only_row boolean PRIMARY KEY DEFAULT true, version integer NOT NULL);
                          INSERT INTO bowline (version) VALUES (1)";
            client.batch_execute(marker).await.unwrap();
            client.batch_execute(FIRST).await.unwrap();
        }
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move {
                    let done = migrate(&config(&url)).await.unwrap();
                    let store = open(&url).await;
                    store.create_session(new_session(), None).await.unwrap();
                    done
                })
            })
            .collect();
        let mut began = Vec::new();
        for task in tasks {
            began.push(task.await.unwrap().from);
        }
        began.sort_unstable();
        assert_eq!(began[0], before, "one migrates");
        assert!(began[1..].iter().all(|from| *from == began[5] && *from > before), "{began:?}");
    }
}

#[tokio::test]
async fn g4_a_transaction_that_conflicts_with_another_is_run_again() {
    let url = fresh_url().await;
    let client = connected(&url).await;
    let conflict = "
        CREATE SEQUENCE tries;
        CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('tries') % 3 <> 0 THEN
                RAISE EXCEPTION 'it was planned' USING ERRCODE = TG_ARGV[0];
            END IF;
            RETURN NEW;
        END $$";
    client.batch_execute(conflict).await.unwrap();
    let store = open(&url).await;
    let me = replica(&store).await;
    for state in ["40001", "40P01"] {
        let mut loaded = owned(&store, me).await;
        let trigger = format!(
            "CREATE OR REPLACE TRIGGER planned BEFORE INSERT OR UPDATE ON sessions
             FOR EACH ROW EXECUTE FUNCTION conflict('{state}')"
        );
        client.batch_execute(&trigger).await.unwrap();
        // A commit, and an operation with a connection of the pool.
        let commit = append(&loaded, me, "once");
        store.commit(Arc::clone(&commit)).await.unwrap();
        store.create_session(new_session(), None).await.unwrap();
        client.batch_execute("DROP TRIGGER planned ON sessions").await.unwrap();
        loaded = load(&store, loaded.id).await;
        assert_eq!(loaded.head, commit.head);
        assert_eq!(texts(&store, loaded.id).await, ["first", "once"]);
    }
    let tries = client.query_one("SELECT last_value FROM tries", &[]).await.unwrap();
    assert_eq!(tries.get::<_, i64>(0), 12, "two of three were refused");
}

/// A commit is on the primary, and its answer was lost. Who sends it again is not told that it is safe before a
/// synchronous standby has it.
#[tokio::test(flavor = "multi_thread")]
async fn g4_a_commit_that_is_sent_again_waits_for_the_standby_like_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), true);
    let url = server.new_database("template0").await;
    let store = open(&url).await;
    let me = replica(&store).await;
    let loaded = owned(&store, me).await;
    let commit = append(&loaded, me, "safe");
    store.commit(Arc::clone(&commit)).await.unwrap();
    let client = connected(&url).await;
    let reload = "SELECT pg_reload_conf()";
    client.batch_execute("ALTER SYSTEM SET synchronous_standby_names TO 'nobody'").await.unwrap();
    client.batch_execute(reload).await.unwrap();
    let shown = "SHOW synchronous_standby_names";
    until(async || {
        connected(&url).await.query_one(shown, &[]).await.unwrap().get::<_, &str>(0) == "nobody"
    })
    .await;
    let again = tokio::spawn({
        let (store, commit) = (Arc::clone(&store), Arc::clone(&commit));
        async move { store.commit(commit).await }
    });
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()";
    until(async || !client.query(waits, &[]).await.unwrap().is_empty()).await;
    assert!(!again.is_finished(), "it was answered while no standby has it");
    client.batch_execute("ALTER SYSTEM RESET synchronous_standby_names").await.unwrap();
    client.batch_execute(reload).await.unwrap();
    assert_eq!(again.await.unwrap(), Ok(()));
    assert_eq!(texts(&store, loaded.id).await, ["first", "safe"]);
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
