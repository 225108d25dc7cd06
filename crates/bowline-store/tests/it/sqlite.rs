//! Tests of the SQLite backend alone: restarts, locks, permissions, durability settings.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use bowline_sbp::lifecycle::Status;
use bowline_store::sqlite::{FILE, Sqlite};
use bowline_store::{CommitError, Error, OpenError, ReplicaId};
use uuid::Uuid;

use crate::fixture::*;
use crate::forks::{grow_tree, orders};
use crate::live::*;

fn open(folder: &Path) -> S {
    Arc::new(Sqlite::open(folder).unwrap())
}

#[tokio::test]
async fn sbp_l1_04_everything_is_there_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut live = Live::new(&store).await;
    let id = live.id();
    for n in 0..10 {
        live.turn(&n.to_string()).await;
    }
    let epoch = live.attach(None).await.epoch;
    live.confirm(epoch, 10).await;
    drop((live, store));
    let store = open(folder.path());
    assert_eq!(pending(&store, id).await, ["5", "6", "7", "8", "9"]);
    assert_eq!(store.history(id).await.unwrap().entries.len(), 20);
}

#[tokio::test]
async fn a_second_process_is_kept_out_until_the_first_ends() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path()).unwrap();
    assert!(matches!(Sqlite::open(folder.path()), Err(OpenError::InUse { .. })));
    drop(store);
    assert!(Sqlite::open(folder.path()).is_ok());
}

#[tokio::test]
async fn data_is_the_owners_alone() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("deep/data");
    let _store = Sqlite::open(&folder).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&folder) & 0o777, 0o700);
    assert_eq!(mode(&folder.join(FILE)) & 0o777, 0o600);
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_named() {
    let error = Sqlite::open(std::path::Path::new("/proc/nowhere")).unwrap_err();
    let OpenError::Folder { path, .. } = &error else { panic!("{error}") };
    assert_eq!(path, "/proc/nowhere");
}

#[tokio::test]
async fn what_is_not_a_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(FILE), "not a database, but long enough to be read as one")
        .unwrap();
    assert!(matches!(Sqlite::open(folder.path()), Err(OpenError::Database(_))));
}

#[tokio::test]
async fn an_operation_runs_to_its_end_when_its_caller_goes_away() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let new = new_session();
    let id = new.id;
    {
        let create = store.create_session(new, None);
        tokio::pin!(create);
        // Polled once: queued, not awaited.
        let _ = futures_poll_once(create.as_mut()).await;
    }
    // The writer runs operations in order: once this one is answered, the other one is done.
    made(&store).await;
    assert!(store.session(id).await.unwrap().is_some());
}

#[tokio::test]
async fn g8_after_any_order_of_deletions_nothing_is_left_over() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let watcher = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    let count = |from: &str| -> i64 {
        watcher.query_row(&format!("SELECT count(*) FROM {from}"), [], |row| row.get(0)).unwrap()
    };
    watcher
        .execute_batch("CREATE VIRTUAL TABLE temp.words USING fts5vocab (main, entry_words, row)")
        .unwrap();
    for order in orders(4) {
        let tree = grow_tree(&store).await;
        assert!(store.index(1000).await.unwrap());
        assert!(count("words") > 0);
        assert_eq!(count("entries"), 10 + 2 + 1 + 2, "a fork copies nothing");
        assert_eq!(count("sessions WHERE base_key = (SELECT min(key) FROM sessions)"), 2, "flat");
        for gone in &order {
            delete(&store, tree[*gone]).await;
            // The newest row id is free now; a session that reuses it must not find old rows.
            let new = made(&store).await.id;
            assert_eq!(count("sessions JOIN trunks USING (key)"), 0, "{order:?}");
            assert!(store.history(new).await.unwrap().entries.is_empty());
            delete(&store, new).await;
            let strays = "entries WHERE place >> 32 NOT IN
                          (SELECT key FROM sessions UNION SELECT key FROM trunks)";
            assert_eq!(count(strays), 0, "{order:?}");
            let strays = "indexed WHERE log NOT IN (SELECT place >> 32 FROM entries)";
            assert_eq!(count(strays), 0, "{order:?}");
        }
        for table in
            ["sessions", "trunks", "entries", "carried", "bundles", "keys", "turns", "attachments"]
        {
            assert_eq!(count(table), 0, "{table} after {order:?}");
        }
        assert!(store.purge_words(1000).await.unwrap());
        assert_eq!((count("indexed"), count("words")), (0, 0), "{order:?}");
    }
}

#[tokio::test]
async fn a_deleted_session_leaves_no_row_behind() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let watcher = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    let count = |table: &&str| -> i64 {
        watcher.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    let mut live = Live::new(&store).await;
    live.turn("a").await;
    live.attach(Some("phone")).await;
    live.submit_as(request("b"), Some(key("s", "k", 1))).await;
    live.call_tools(&["camera"]).await;
    store.keep_export(export_of(live.id())).await.unwrap();
    assert!(store.index(1000).await.unwrap());
    let tables = [
        "sessions",
        "entries",
        "turns",
        "keys",
        "attachments",
        "surfaces",
        "approvals",
        "bundles",
        "indexed",
    ];
    assert!(tables.iter().all(|table| count(table) > 0), "{:?}", tables.each_ref().map(count));
    live.delete().await;
    assert_eq!(tables.each_ref().map(count), [0; 9]);
}

#[tokio::test]
async fn no_word_of_a_deleted_session_is_left_in_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let watcher = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    let blocks_with = |word: &str| -> i64 {
        let sql = "SELECT count(*) FROM entry_words_data WHERE instr(block, CAST(?1 AS BLOB)) > 0";
        watcher.query_row(sql, [word], |row| row.get(0)).unwrap()
    };
    let (mut gone, mut kept) = (Live::new(&store).await, Live::new(&store).await);
    for text in ["zanzibar", "quokka", "zanzibar"] {
        gone.turn(text).await;
        kept.turn("xylophone").await;
        // Each time another segment of the index.
        assert!(store.index(1000).await.unwrap());
    }
    assert!(blocks_with("zanzibar") > 0 && blocks_with("quokka") > 0);
    assert!(store.purge_words(0).await.unwrap(), "nothing was deleted");
    gone.delete().await;
    assert!(store.purge_words(100).await.unwrap());
    assert_eq!((blocks_with("zanzibar"), blocks_with("quokka")), (0, 0));
    assert!(blocks_with("xylophone") > 0);
    // Words that are deleted later are removed as well.
    kept.delete().await;
    assert!(store.purge_words(100).await.unwrap());
    assert_eq!(blocks_with("xylophone"), 0);
    watcher
        .execute("INSERT INTO entry_words (entry_words) VALUES ('integrity-check')", [])
        .unwrap();
}

#[tokio::test]
async fn g8_a_trunk_keeps_only_what_is_still_shared() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let watcher = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    let entries = || -> i64 {
        watcher.query_row("SELECT count(*) FROM entries", [], |row| row.get(0)).unwrap()
    };
    let root = store.import(import_of("elsewhere", 9)).await.unwrap().session.id;
    let mut forks = Vec::new();
    for step in [2, 5, 7] {
        forks.push(store.fork(fork_of(root, Some(step))).await.unwrap().session.id);
    }
    delete(&store, root).await;
    assert_eq!(entries(), 14);
    for (gone, left) in [(forks[1], 14), (forks[2], 4), (forks[0], 0)] {
        delete(&store, gone).await;
        assert_eq!(entries(), left);
    }
}

#[tokio::test]
async fn sbp_l3_11_forks_are_there_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let tree = grow_tree(&store).await;
    delete(&store, tree[0]).await;
    let mut before = Vec::new();
    for id in tree {
        before.push(texts(&store, id).await);
    }
    drop(store);
    let store = open(folder.path());
    for (id, before) in tree.into_iter().zip(before) {
        assert_eq!(texts(&store, id).await, before);
    }
}

#[tokio::test]
async fn g13_opening_the_folder_ends_attachments() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let (mut running, mut idle) = (Live::new(&store).await, Live::new(&store).await);
    let mut ended = Live::new(&store).await;
    let alone = made(&store).await.id;
    take_turn(&store, alone, "a").await;
    running.turn("a").await;
    running.join(Some("phone")).await;
    running.join(None).await;
    idle.attach(None).await;
    ended.set_status(bowline_sbp::lifecycle::Change::Complete).await;
    ended.attach(None).await;
    let ids = [running.id(), idle.id(), ended.id(), alone];
    let version = store.load(ids[0]).await.unwrap().unwrap().version;
    drop((running, idle, ended, store));

    let store = open(folder.path());
    let mut seen = Vec::new();
    for id in ids {
        assert!(store.attached(id).await.unwrap().is_empty());
        let session = store.session(id).await.unwrap().unwrap();
        assert_eq!(session.surface, None);
        seen.push(session.status);
    }
    let expected = [Status::Suspended, Status::Idle, Status::Completed, Status::Running];
    assert_eq!(seen, expected, "only what ran is suspended, and only if somebody was attached");
    let devices = store.devices(ids[0]).await.unwrap();
    assert_eq!(devices[0].surface_id, "phone", "who it was stays known");
    assert!(store.load(ids[0]).await.unwrap().unwrap().version > version, "nobody read it before");
}

#[tokio::test]
async fn g16_opening_the_folder_makes_every_session_takeable() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let before = ReplicaId(Uuid::new_v4());
    let id = made(&store).await.id;
    let mut live = Live::owned_by(&store, id, before).await;
    let turn = live.submit("hi").await;
    let late = live.prepare(whole_turn("late"));
    drop((live, store));

    let store = open(folder.path());
    assert_eq!(store.commit(late).await, Err(CommitError::Fenced), "its process is gone");
    let next = ReplicaId(Uuid::new_v4());
    assert_eq!(store.unfinished(next).await.unwrap(), [(id, 1)]);
    let mut heir = Live::owned_by(&store, id, next).await;
    heir.take_up().await;
    let left = store.load(id).await.unwrap().unwrap();
    assert_eq!((left.fence, left.turns[0].id, left.turns[0].attempt), (2, turn, 2));
    heir.answer("hello").await;
    assert_eq!(texts(&store, id).await, ["hi", "hello"]);
}

#[tokio::test]
async fn g16_a_closed_store_leaves_a_clean_file_and_writes_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut live = Live::new(&store).await;
    live.turn("a").await;
    let id = live.id();
    let wal = folder.path().join(format!("{FILE}-wal"));
    let length = || std::fs::metadata(&wal).map_or(0, |file| file.len());
    assert!(length() > 0, "there is something to fold in");
    // Operations queued before the close are still written.
    let queued = new_session();
    let (made, ()) = tokio::join!(store.create_session(queued.clone(), None), store.close());
    assert!(made.is_ok());
    assert_eq!(length(), 0);

    assert_eq!(store.create_session(new_session(), None).await.unwrap_err(), Error::Closed);
    assert_eq!(store.check().await, Err(Error::Closed));
    assert_eq!(store.forget_keys(at()).await, Err(Error::Closed));
    let refused = live.feed(whole_turn("b")).await;
    assert!(matches!(refused, Err(CommitError::NotStored(_))), "{refused:?}");
    store.close().await;
    assert_eq!(length(), 0, "nothing is written after it");
    assert_eq!(texts(&store, id).await, ["ask a", "a"], "it can still be read");

    // The database file alone, without a WAL file, is the whole store.
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(folder.path().join(FILE), copy.path().join(FILE)).unwrap();
    let copied = open(copy.path());
    assert_eq!(texts(&copied, id).await, ["ask a", "a"]);
    assert!(copied.session(queued.id).await.unwrap().is_some());
}

#[tokio::test]
async fn g16_a_close_cuts_between_what_is_answered_and_what_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let tasks: Vec<_> = (0..600)
        .map(|n| {
            let (store, new) = (Arc::clone(&store), new_session());
            tokio::spawn(async move {
                if n == 300 {
                    store.close().await;
                }
                (new.id, store.create_session(new, None).await)
            })
        })
        .collect();
    let mut stored = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            (id, Ok(_)) => stored.push(id),
            (_, Err(refused)) => assert_eq!(refused, Error::Closed),
        }
    }
    assert!((1..600).contains(&stored.len()), "{}", stored.len());
    drop(store);
    let mut found = all_sessions(&open(folder.path())).await;
    found.sort();
    stored.sort();
    assert_eq!(found, stored);
}

#[tokio::test]
async fn g16_a_store_closes_while_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let id = made(&store).await.id;
    let mut live = Live::of(&store, id).await;
    for n in 0..50 {
        live.turn(&n.to_string()).await;
    }
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for _ in 0..50 {
                    assert_eq!(store.history(id).await.unwrap().entries.len(), 100);
                }
            })
        })
        .collect();
    store.close().await;
    let wal = folder.path().join(format!("{FILE}-wal"));
    assert_eq!(std::fs::metadata(wal).map_or(0, |file| file.len()), 0);
    for reader in readers {
        reader.await.unwrap();
    }
}

async fn futures_poll_once<F: Future + Unpin>(mut future: F) -> bool {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut future).poll(cx).is_ready())
    })
    .await
}

#[tokio::test]
async fn nothing_is_indexed_while_deleted_words_are_merged_away() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut live = Live::new(&store).await;
    live.turn("xylophone").await;
    let other = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    other.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
    // As after the deletion of a session from a large index.
    other.execute("UPDATE purge SET due = 1", []).unwrap();
    assert!(!store.index(1000).await.unwrap(), "a new segment would start the merge anew");
    assert!(store.purge_words(100).await.unwrap());
    assert!(store.index(1000).await.unwrap());
    assert_eq!(
        store.search(bowline_sbp::access::OWNER, vec!["xylophone".into()], 5).await.unwrap().len(),
        2
    );
}
