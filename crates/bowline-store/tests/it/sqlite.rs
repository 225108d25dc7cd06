//! What only the file backend has to show: restarts, locks, permissions, durability settings.

use std::os::unix::fs::PermissionsExt;

use bowline_store::sqlite::{FILE, Sqlite};
use bowline_store::{OpenError, Store};

use crate::fixture::*;

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

async fn futures_poll_once<F: Future + Unpin>(mut future: F) -> bool {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut future).poll(cx).is_ready())
    })
    .await
}
