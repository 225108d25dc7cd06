//! Blobs: images, sounds and files that messages refer to, each stored once.
//!
//! Apart, because several sessions may use one blob: it belongs to no session. A use names the
//! place of the log entry that refers to it; place 0 of a log stands for the turns that are accepted
//! and have not ended.
//!
//! Invariants
//! - Every blob has a use; with its last use it is deleted, in the same transaction.
//! - A use is added only with the blob's bytes, or in a session that uses the blob already: who
//!   knows a hash gets nothing by it.

use std::collections::HashSet;

use bowline_sbp::blob::{Blob, BlobRef};
use bowline_sbp::cid::Cid;
use bowline_sbp::id::SessionId;
use bowline_sbp::media::references;
use bowline_sbp::message::Message;
use rusqlite::{Connection, OptionalExtension, params};

use super::history;
use super::rows::{self, Key, place};
use crate::Result;

/// Stores blobs of turns that were accepted.
pub(super) fn accept(conn: &Connection, key: Key, blobs: &[Blob]) -> Result<()> {
    blobs.iter().try_for_each(|blob| keep(conn, blob, place(key, 0)))
}

/// Stores the blobs of an entry, and its uses of blobs that the session has already.
pub(super) fn append(
    conn: &Connection,
    key: Key,
    at: i64,
    message: &Message,
    blobs: &[Blob],
) -> Result<()> {
    blobs.iter().try_for_each(|blob| keep(conn, blob, at))?;
    for reference in references(message) {
        if is_used(conn, key, reference.cid)? {
            add_use(conn, reference.cid, at)?;
        }
    }
    Ok(())
}

/// A turn of a session has ended. With the last one, what only requests used is deleted: it may have
/// come with an earlier turn.
pub(super) fn release(conn: &Connection, key: Key) -> Result<()> {
    let used = "SELECT 1 FROM blob_uses WHERE place = ?1";
    let waiting = "SELECT 1 FROM turns WHERE session = ?1";
    if !conn.prepare_cached(used)?.exists([place(key, 0)])?
        || conn.prepare_cached(waiting)?.exists([key])?
    {
        return Ok(());
    }
    delete_uses(conn, place(key, 0), place(key, 0))
}

/// Deletes the uses of entries from one place to another, and blobs that have no use left.
pub(super) fn delete_uses(conn: &Connection, from: i64, to: i64) -> Result<()> {
    let mut deleted = conn
        .prepare_cached("DELETE FROM blob_uses WHERE place >= ?1 AND place <= ?2 RETURNING hash")?;
    let hashes = deleted.query_map([from, to], |row| row.get(0))?;
    let hashes: Vec<[u8; 32]> = hashes.collect::<rusqlite::Result<_>>()?;
    for hash in hashes {
        conn.prepare_cached(
            "DELETE FROM blobs WHERE hash = ?1
             AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE hash = ?1)",
        )?
        .execute([hash])?;
    }
    Ok(())
}

/// Those of the references that name a blob which the session uses, by hash and size.
pub(super) fn known(conn: &Connection, id: SessionId, all: &[BlobRef]) -> Result<HashSet<BlobRef>> {
    let Some(key) = rows::key_of(conn, id)? else { return Ok(HashSet::new()) };
    let mut known = HashSet::new();
    for &blob in all {
        let size = "SELECT 1 FROM blobs WHERE hash = ?1 AND length(bytes) = ?2";
        let wanted = params![blob.cid.as_bytes(), i64::try_from(blob.size).unwrap_or(-1)];
        if conn.prepare_cached(size)?.exists(wanted)? && is_used(conn, key, blob.cid)? {
            known.insert(blob);
        }
    }
    Ok(known)
}

/// The blobs with these hashes that the session uses.
pub(super) fn read(conn: &Connection, id: SessionId, wanted: &[Cid]) -> Result<Vec<Blob>> {
    let Some(key) = rows::key_of(conn, id)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for &cid in wanted {
        if !is_used(conn, key, cid)? {
            continue;
        }
        let bytes: Option<Vec<u8>> = conn
            .prepare_cached("SELECT bytes FROM blobs WHERE hash = ?1")?
            .query_row([cid.as_bytes()], |row| row.get(0))
            .optional()?;
        let bytes = bytes.ok_or_else(|| rows::corrupt("a blob that is used and missing"))?;
        found.push(Blob { cid, bytes: bytes.into() });
    }
    Ok(found)
}

fn keep(conn: &Connection, blob: &Blob, at: i64) -> Result<()> {
    let hash = blob.cid.as_bytes();
    // Not `INSERT OR IGNORE`, which would copy the bytes first.
    if !conn.prepare_cached("SELECT 1 FROM blobs WHERE hash = ?1")?.exists([hash])? {
        conn.prepare_cached("INSERT INTO blobs (hash, bytes) VALUES (?1, ?2)")?
            .execute(params![hash, &*blob.bytes])?;
    }
    add_use(conn, blob.cid, at)
}

fn add_use(conn: &Connection, cid: Cid, at: i64) -> Result<()> {
    conn.prepare_cached("INSERT OR IGNORE INTO blob_uses (hash, place) VALUES (?1, ?2)")?
        .execute(params![cid.as_bytes(), at])?;
    Ok(())
}

/// Whether an entry or an accepted turn of the session uses the blob; entries that it shares with
/// the session it was forked from count.
fn is_used(conn: &Connection, key: Key, cid: Cid) -> Result<bool> {
    let mut used = conn.prepare_cached(
        "SELECT 1 FROM blob_uses WHERE hash = ?1 AND place >= ?2 AND place <= ?3",
    )?;
    if used.exists(params![cid.as_bytes(), place(key, 0), place(key, 0)])? {
        return Ok(true);
    }
    for [after, to] in history::places(conn, key)? {
        if used.exists(params![cid.as_bytes(), after + 1, to])? {
            return Ok(true);
        }
    }
    Ok(false)
}
