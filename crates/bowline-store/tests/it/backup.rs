//! Copies of a database in use, what was erased, and logs that are missing (G23).

use std::path::Path;
use std::sync::Arc;

use bowline_sbp::access::OWNER;
use bowline_sbp::blob::Blob;
use bowline_sbp::id::AgentId;
use bowline_store::sqlite::backup::{self, CopyError};
use bowline_store::sqlite::{FILE, RESTORING, Sqlite, incomplete_since};
use bowline_store::{MemoryKind, MemoryOwner, NewMemory, OpenError};
use rusqlite::Connection;

use crate::blobs::submit_image;
use crate::fixture::*;
use crate::live::*;

fn open(folder: &Path) -> S {
    Arc::new(Sqlite::open(folder).unwrap())
}

/// Copies the database of a folder that may be in use to a new folder.
fn copied(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    backup::copy(&folder.join(FILE), &copy.path().join(FILE)).unwrap();
    copy
}

/// Copies files of a folder by name, as a user would.
fn copied_files(folder: &Path, names: &[&str]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in names {
        std::fs::copy(folder.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

/// The files of a folder in which the text occurs, in any case.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let text = text.to_lowercase().into_bytes();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let bytes = std::fs::read(entry.path()).unwrap().to_ascii_lowercase();
        if bytes.windows(text.len()).any(|window| window == text) {
            found.push(entry.file_name().into_string().unwrap());
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn g23_a_copy_made_while_turns_are_taken_is_true_of_one_instant() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let (mut first, mut second) = (Live::new(&store).await, Live::new(&store).await);
    let ids = [first.id(), second.id()];
    let copies = std::thread::spawn({
        let path = folder.path().to_owned();
        move || (0..8).map(|_| copied(&path)).collect::<Vec<_>>()
    });
    let mut turns = 0;
    while turns == 0 || !copies.is_finished() {
        first.turn(&turns.to_string()).await;
        second.turn(&turns.to_string()).await;
        turns += 1;
    }
    let mut seen = Vec::new();
    for copy in copies.join().unwrap() {
        backup::check(&copy.path().join(FILE)).unwrap();
        let store = open(copy.path());
        let [first, second] = [texts(&store, ids[0]).await, texts(&store, ids[1]).await];
        let ahead = first.len() - second.len();
        assert!(ahead <= 2, "the second is never ahead, and the first by one turn at most");
        assert_eq!(first[..second.len()], second);
        assert_eq!(incomplete_since(copy.path()), None, "a copy misses no log");
        seen.push(first.len());
    }
    assert!(seen.is_sorted(), "{seen:?}");
    // What was acknowledged before the copy began is in it.
    let last = copied(folder.path());
    assert_eq!(texts(&open(last.path()), ids[1]).await.len(), 2 * turns);
}

#[tokio::test]
async fn a_copy_tells_what_is_inside_and_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for _ in 0..3 {
        made(&store).await;
    }
    let copy = copied(folder.path());
    let path = copy.path().join(FILE);
    let contents = backup::contents(&path).unwrap();
    assert_eq!(contents.sessions, 3);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let conn = Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", contents.schema_version + 1).unwrap();
    let newer = backup::contents(&path).unwrap_err();
    assert!(matches!(newer, OpenError::NewerSchema { .. }), "{newer}");
}

#[tokio::test]
async fn a_damaged_database_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut live = Live::new(&store).await;
    for n in 0..200 {
        live.turn(&n.to_string().repeat(100)).await;
    }
    let copy = copied(folder.path());
    let path = copy.path().join(FILE);
    backup::check(&path).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() / 4096 / 2 * 4096;
    bytes[at..at + 64].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(backup::check(&path), Err(CopyError::Damaged(_))));
}

#[tokio::test]
async fn g23_what_was_erased_is_in_no_file_and_no_later_copy() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let agent = MemoryOwner { user: OWNER, agent: AgentId::fallback() };
    let memory = |text: &str| NewMemory {
        id: bowline_sbp::id::MemoryId(uuid::Uuid::now_v7()),
        kind: MemoryKind::Semantic,
        text: text.into(),
        session_id: None,
        at: at(),
    };
    let mut kept = Live::new(&store).await;
    let mut gone = Live::new(&store).await;
    // Small rows that share pages with others, and large ones with pages of their own.
    for n in 0..30 {
        kept.turn(&format!("stays {n}")).await;
        gone.turn(&format!("xylophone {n}")).await;
    }
    gone.turn(&"Xylophone and more. ".repeat(3000)).await;
    let image = Blob::new(b"xylophone ".repeat(20_000));
    submit_image(&mut gone, &image, true).await;
    gone.answer("a xylophone").await;
    gone.submit_as(request(&"xylophone ".repeat(2000)), Some(key("s", "xylophone", 1))).await;
    store.keep_export(export_of(gone.id())).await.unwrap();
    let old = [memory("the xylophone is out of tune"), memory("tea at five")];
    let old = store.remember(agent.clone(), old.into(), false).await.unwrap();
    assert!(!files_with(copied(folder.path()).path(), "xylophone").is_empty());
    // A word that only the index holds in this form.
    gone.turn("Zanzibar").await;
    assert!(store.index(1000).await.unwrap());

    gone.delete().await;
    store.forget(agent.clone(), Some(old[0].id)).await.unwrap();
    // The words of the search index go in steps; of a copy at once.
    let copy = copied(folder.path());
    assert_eq!(files_with(copy.path(), "xylophone"), [""; 0]);
    assert_eq!(files_with(copy.path(), "zanzibar"), [""; 0]);
    assert!(store.purge_words(0).await.unwrap(), "a small index is merged with the deletion");
    until_gone(&store, folder.path(), "xylophone").await;
    until_gone(&store, folder.path(), "zanzibar").await;
    let copy = copied(folder.path());
    assert_eq!(files_with(copy.path(), "xylophone"), [""; 0]);
    let copy = open(copy.path());
    assert_eq!(texts(&copy, kept.id()).await.len(), 60);
    let found = copy.recall(agent.clone(), vec!["five".into()], 5).await.unwrap();
    assert_eq!(found[0].text, "tea at five", "the rest is still found");

    let new = vec![memory("milk first")];
    store.remember(agent, new, true).await.unwrap();
    // Replaced is erased, too.
    until_gone(&store, folder.path(), "at five").await;
}

/// Waits until no file of the folder has the text. A fold that a reader prevented comes with a later
/// write.
async fn until_gone(store: &S, folder: &Path, text: &str) {
    let begun = std::time::Instant::now();
    while !files_with(folder, text).is_empty() {
        assert!(begun.elapsed().as_secs() < 60, "{text} never goes");
        store.check().await.unwrap();
    }
}

#[tokio::test]
async fn g23_what_is_erased_while_somebody_reads_goes_with_a_later_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut live = Live::new(&store).await;
    live.turn("xylophone").await;
    let reader = Connection::open(folder.path().join(FILE)).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM entries").unwrap();
    live.delete().await;
    assert!(!files_with(folder.path(), "xylophone").is_empty(), "the reader still needs it");
    reader.execute_batch("COMMIT").unwrap();
    until_gone(&store, folder.path(), "xylophone").await;
}

#[tokio::test]
async fn g23_every_word_index_erases_words() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let conn = Connection::open(folder.path().join(FILE)).unwrap();
    let mut tables = conn
        .prepare("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%fts5%'")
        .unwrap();
    let tables: Vec<String> =
        tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(!tables.is_empty());
    // The words of entries are merged away in steps instead.
    assert!(tables.contains(&"entry_words".to_owned()));
    for table in tables.into_iter().filter(|table| table != "entry_words") {
        let set = format!("SELECT v FROM {table}_config WHERE k = 'secure-delete'");
        assert_eq!(conn.query_row(&set, [], |row| row.get::<_, i64>(0)), Ok(1), "{table}");
    }
}

/// Copies the file again until it says that it is open, which it does soon after the start.
fn until_marked(folder: &Path, copy: &Path) {
    let begun = std::time::Instant::now();
    let marked = || {
        std::fs::copy(folder.join(FILE), copy.join(FILE)).unwrap();
        let conn = Connection::open(copy.join(FILE)).unwrap();
        let opened = conn.query_row("SELECT opened_at FROM usage", [], |row| row.get(0));
        opened.is_ok_and(|at: Option<i64>| at.is_some())
    };
    while !marked() {
        assert!(begun.elapsed().as_secs() < 60, "it is never marked");
    }
}

#[tokio::test]
async fn g23_a_file_that_was_copied_without_its_log_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    until_marked(folder.path(), copy.path());
    let mut live = Live::new(&store).await;
    live.turn("a").await;
    assert_eq!(incomplete_since(folder.path()), None);

    std::fs::copy(folder.path().join(FILE), copy.path().join(FILE)).unwrap();
    // A backup of it, which only reads, changes nothing.
    drop(copied(copy.path()));
    for round in 0..2 {
        let opened = open(copy.path());
        assert_eq!(all_sessions(&opened).await, [], "the turn is in the log that is missing");
        assert!(incomplete_since(copy.path()).is_some(), "round {round}");
        // Not closed by a gateway that stopped: `bowline doctor` looks like this.
        drop(opened);
    }
    open(copy.path()).close().await;
    let opened = open(copy.path());
    assert_eq!(incomplete_since(copy.path()), None, "a gateway has run on it and stopped");
    drop(opened);
}

#[tokio::test]
async fn g23_a_file_with_its_log_or_one_that_was_closed_is_no_cause_for_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut live = Live::new(&store).await;
    live.turn("a").await;
    let log = format!("{FILE}-wal");
    // As after kill -9: the log is there.
    let killed = copied_files(folder.path(), &[FILE, &log]);
    assert_eq!(texts(&open(killed.path()), live.id()).await, ["ask a", "a"]);
    assert_eq!(incomplete_since(killed.path()), None);
    // As after kill -9 just after something was erased, when the log was folded in.
    let mut gone = Live::new(&store).await;
    gone.delete().await;
    let killed = copied_files(folder.path(), &[FILE, &log]);
    assert_eq!(texts(&open(killed.path()), live.id()).await, ["ask a", "a"]);
    assert_eq!(incomplete_since(killed.path()), None);
    // As after kill -9 just after the start.
    store.close().await;
    let young = copied_files(folder.path(), &[FILE]);
    let store = open(young.path());
    let killed = copied_files(young.path(), &[FILE, &log]);
    drop((open(killed.path()), store));
    assert_eq!(incomplete_since(killed.path()), None);
    assert_eq!(incomplete_since(young.path()), None);
}

#[tokio::test]
async fn g16_a_close_while_somebody_reads_leaves_the_log_and_says_that_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut live = Live::new(&store).await;
    let reader = Connection::open(folder.path().join(FILE)).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM entries").unwrap();
    live.turn("a").await;
    store.close().await;
    let log = format!("{FILE}-wal");
    let alone = copied_files(folder.path(), &[FILE]);
    let both = copied_files(folder.path(), &[FILE, &log]);
    drop(open(alone.path()));
    assert!(incomplete_since(alone.path()).is_some());
    assert_eq!(texts(&open(both.path()), live.id()).await, ["ask a", "a"]);
    assert_eq!(incomplete_since(both.path()), None);
}

#[tokio::test]
async fn a_folder_with_an_unfinished_restore_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(RESTORING)).unwrap();
    let refused = Sqlite::open(folder.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Restoring { .. }), "{refused}");
    assert!(!folder.path().join(FILE).exists());
}
