//! What only the file backend has to show: restarts, locks, permissions, durability settings.

use std::os::unix::fs::PermissionsExt;

use bowline_store::sqlite::{FILE, Sqlite};
use bowline_store::{OpenError, Store};

use crate::fixture::*;
use crate::forks::{grow_tree, orders};

#[tokio::test]
async fn sbp_l1_04_everything_is_there_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let me = instance();
    let store = Sqlite::open(folder.path()).unwrap();
    let id = made(&store).await.id;
    for n in 0..10 {
        take_turn(&store, id, me, &n.to_string()).await;
    }
    let epoch = store.attach(attach_to(id, me)).await.unwrap().epoch;
    store.confirm(id, epoch, 10).await.unwrap();
    drop(store);
    let store = Sqlite::open(folder.path()).unwrap();
    assert_eq!(pending(&store, id).await, ["5", "6", "7", "8", "9"]);
    assert_eq!(store.history(id).await.unwrap().len(), 20);
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
    let store = Sqlite::open(folder.path()).unwrap();
    let new = new_session();
    let id = new.id;
    {
        let create = store.create_session(new, None);
        tokio::pin!(create);
        // Polled once: queued, not awaited.
        let _ = futures_poll_once(create.as_mut()).await;
    }
    // The writer takes operations in order: once this answers, the other one was done.
    made(&store).await;
    assert!(store.session(id).await.unwrap().is_some());
}

#[tokio::test]
async fn g8_after_any_order_of_deletions_nothing_is_left_over() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path()).unwrap();
    let watcher = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    let count = |from: &str| -> i64 {
        watcher.query_row(&format!("SELECT count(*) FROM {from}"), [], |row| row.get(0)).unwrap()
    };
    for order in orders(4) {
        let tree = grow_tree(&store).await;
        assert_eq!(count("entries"), 10 + 2 + 1 + 2, "a fork copies nothing");
        assert_eq!(count("sessions WHERE base_key = (SELECT min(key) FROM sessions)"), 2, "flat");
        for gone in &order {
            store.delete_session(tree[*gone]).await.unwrap();
            // The newest row number is free now; whoever takes it must not find anything there.
            let new = made(&store).await.id;
            assert_eq!(count("sessions JOIN trunks USING (key)"), 0, "{order:?}");
            assert!(store.history(new).await.unwrap().is_empty());
            store.delete_session(new).await.unwrap();
            let strays = "entries WHERE place >> 32 NOT IN
                          (SELECT key FROM sessions UNION SELECT key FROM trunks)";
            assert_eq!(count(strays), 0, "{order:?}");
        }
        for table in ["sessions", "trunks", "entries", "carried", "bundles", "keys", "turns"] {
            assert_eq!(count(table), 0, "{table} after {order:?}");
        }
    }
}

#[tokio::test]
async fn g8_a_trunk_keeps_only_what_is_still_shared() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path()).unwrap();
    let watcher = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    let entries = || -> i64 {
        watcher.query_row("SELECT count(*) FROM entries", [], |row| row.get(0)).unwrap()
    };
    let root = store.import(import_of("elsewhere", 9)).await.unwrap().session.id;
    let mut forks = Vec::new();
    for step in [2, 5, 7] {
        forks.push(store.fork(fork_of(root, Some(step))).await.unwrap().session.id);
    }
    store.delete_session(root).await.unwrap();
    assert_eq!(entries(), 14);
    for (gone, left) in [(forks[1], 14), (forks[2], 4), (forks[0], 0)] {
        store.delete_session(gone).await.unwrap();
        assert_eq!(entries(), left);
    }
}

#[tokio::test]
async fn sbp_l3_11_forks_are_there_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path()).unwrap();
    let tree = grow_tree(&store).await;
    store.delete_session(tree[0]).await.unwrap();
    let mut before = Vec::new();
    for id in tree {
        before.push(texts(&store, id).await);
    }
    drop(store);
    let store = Sqlite::open(folder.path()).unwrap();
    for (id, before) in tree.into_iter().zip(before) {
        assert_eq!(texts(&store, id).await, before);
    }
}

async fn futures_poll_once<F: Future + Unpin>(mut future: F) -> bool {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut future).poll(cx).is_ready())
    })
    .await
}
