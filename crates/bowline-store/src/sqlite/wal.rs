//! The write-ahead log: when it is folded into the database file, and whether it is missing.
//!
//! Committed turns are in `bowline.db-wal` until a checkpoint copies them into `bowline.db`. So a
//! copy of `bowline.db` alone, made while a gateway runs, opens without an error and lacks turns; of
//! a young gateway it lacks everything. SQLite cannot notice that. A mark in the file can: the row of
//! `usage` says that the file is open. It is in `bowline.db` itself a few milliseconds after the start
//! ([`bring_mark_in`]), and goes with a close in good order.
//!
//! Invariants
//! - While the mark says "open", the log is never empty: [`Folding`] writes after it has emptied it.
//!   So a file that is marked, with no log or an empty one beside it, was copied or moved without its
//!   log. There is one more way to get there: the gateway was killed, and then another program opened
//!   the database and closed it, which folds the log in. Nothing is missing then. Hence a warning, and
//!   not a refusal.
//! - A close in good order takes the mark away and folds the log in. If a reader prevents that (a
//!   backup that is being made), the mark stays in the file, and the log beside it.
//! - What was erased is overwritten in the file when the log is folded in, and the log is emptied
//!   with it (G23).

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::FILE;
use super::connect::BUSY;
use super::rows::{millis, timestamp};

/// How long the writer waits for readers before it puts off folding the log in.
const PATIENCE: Duration = Duration::from_millis(50);
/// The pause before the next try.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether the database has no write-ahead log with anything in it.
pub(super) fn is_missing(database: &Path) -> bool {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(PathBuf::from(log)).map_or(true, |log| log.len() == 0)
}

/// Marks the file as open, and records if its log is missing.
pub(super) fn open(conn: &Connection, at: Timestamp, log_is_missing: bool) -> rusqlite::Result<()> {
    conn.execute(
        "UPDATE usage SET opened_at = ?1,
             incomplete_since = iif(?2, coalesce(opened_at, incomplete_since), incomplete_since)",
        (millis(at), log_is_missing),
    )?;
    Ok(())
}

/// Brings the mark into the file itself: a checkpoint on a thread of its own, because it takes a disk
/// flush that a start need not wait for. It keeps no writer waiting.
pub(super) fn bring_mark_in(database: PathBuf) -> std::io::Result<JoinHandle<()>> {
    let bring = move || -> rusqlite::Result<bool> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(database, flags)?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        checkpoint(&conn, "PASSIVE")
    };
    std::thread::Builder::new().name("bowline-mark".into()).spawn(move || {
        if let Err(error) = bring() {
            tracing::warn!(%error, "{FILE} is not marked as open; a bad copy would not be noticed");
        }
    })
}

/// Warns if the log of the file that was opened is missing.
pub(super) fn warn_if_missing(conn: &Connection, folder: &Path) -> rusqlite::Result<()> {
    if let Some(since) = recorded(conn)? {
        tracing::warn!(
            data = %folder.display(), in_use_since = %since,
            "{FILE} was in use when it was copied or its gateway was killed, and its write-ahead \
             log ({FILE}-wal) is missing: the newest turns may be missing, or all. If this is a \
             copy, stop, delete it and use `bowline backup` instead of copying the file"
        );
    }
    Ok(())
}

/// Closes the file in good order. Readers may finish first, for as long as the busy timeout.
fn close(conn: &Connection, gateway_stopped: bool) {
    let unmark = "UPDATE usage SET opened_at = NULL,
                      incomplete_since = iif(?1, NULL, incomplete_since)";
    let folded = match conn.execute(unmark, [gateway_stopped]) {
        Ok(_) => checkpoint(conn, "TRUNCATE"),
        // On a full disk the file stays marked, so the log must not be emptied.
        Err(error) => checkpoint(conn, "PASSIVE").and(Err(error)),
    };
    match folded {
        Ok(true) => {}
        Ok(false) => tracing::warn!(
            "somebody reads the database, so {FILE}-wal stays: keep it beside {FILE}"
        ),
        Err(error) => tracing::warn!(%error, "the checkpoint of the write-ahead log failed"),
    }
}

/// When the folder was opened whose copy this is, if its log is missing. Also while a gateway runs.
pub fn incomplete_since(folder: &Path) -> Option<Timestamp> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(folder.join(FILE), flags).ok()?;
    conn.busy_timeout(BUSY).ok()?;
    recorded(&conn).ok().flatten()
}

fn recorded(conn: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let since = conn.query_row("SELECT incomplete_since FROM usage", [], |row| row.get(0));
    Ok(since.optional()?.flatten().and_then(|since: i64| timestamp(since).ok()))
}

/// Marks a copy as closed, if its schema has marks. If the log of its source is missing, the copy
/// goes on saying so.
pub(super) fn unmark(conn: &Connection, log_is_missing: bool) -> rusqlite::Result<()> {
    let known = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'usage'";
    if conn.query_row(known, [], |row| row.get::<_, i64>(0))? > 0 {
        conn.execute(
            "UPDATE usage SET opened_at = NULL,
                 incomplete_since = iif(?1, coalesce(opened_at, incomplete_since), incomplete_since)",
            [log_is_missing],
        )?;
    }
    Ok(())
}

/// Folds the log in after something was erased, and at the end.
///
/// SQLite refuses a checkpoint at once while another connection makes one; no busy timeout applies.
/// So each waits for the thread of [`bring_mark_in`] first.
#[derive(Debug, Default)]
pub(super) struct Folding {
    pending: bool,
    put_off: Option<Instant>,
    marking: Option<JoinHandle<()>>,
}

impl Drop for Folding {
    /// Whoever owns the folder keeps it until nothing uses it any more.
    fn drop(&mut self) {
        self.wait_for_mark();
    }
}

impl Folding {
    /// `pending`: something may have been erased before. `marking`: the thread that brings the mark in.
    pub(super) fn new(pending: bool, marking: JoinHandle<()>) -> Self {
        Self { pending, put_off: None, marking: Some(marking) }
    }

    /// Closes the file in good order, at the end of the writer thread.
    pub(super) fn close(mut self, conn: &Connection, gateway_stopped: bool) {
        self.wait_for_mark();
        close(conn, gateway_stopped);
    }

    /// Called after each batch. `erased`: something was erased in this one.
    pub(super) fn fold_if_due(&mut self, conn: &Connection, erased: bool) {
        self.pending |= erased;
        let rests = self.put_off.is_some_and(|at| at.elapsed() < PAUSE);
        if !self.pending || rests {
            return;
        }
        self.wait_for_mark();
        let folded = fold(conn).unwrap_or_else(|error| {
            tracing::warn!(%error, "what was erased cannot be folded in yet");
            false
        });
        self.pending = !folded;
        self.put_off = (!folded).then(Instant::now);
    }

    fn wait_for_mark(&mut self) {
        if let Some(marking) = self.marking.take() {
            // A panic there has been printed, and leaves no checkpoint to wait for.
            let _ = marking.join();
        }
    }
}

fn fold(conn: &Connection) -> rusqlite::Result<bool> {
    conn.busy_timeout(PATIENCE)?;
    let folded = checkpoint(conn, "TRUNCATE");
    conn.busy_timeout(BUSY)?;
    // The log of a file that is open is never empty. SQLite writes nothing if nothing changes.
    conn.execute("UPDATE usage SET folds = folds + 1", [])?;
    folded
}

/// Whether all of the log is in the file now.
fn checkpoint(conn: &Connection, mode: &str) -> rusqlite::Result<bool> {
    conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        let (busy, in_log, copied): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(busy == 0 && in_log == copied)
    })
}
