//! Blobs: images, sounds and files that messages refer to, each stored once.
//!
//! Apart, because several sessions may use one blob: it belongs to no session. A use names the log entry that
//! refers to it; seq 0 of a log stands for the turns that are accepted and have not ended.
//!
//! Invariants
//! - Every blob has a use; with its last use it is deleted, in the same transaction. If another transaction adds
//!   a use meanwhile, the foreign key makes one of both run again.
//! - A use is added only with the blob's bytes, or in a session that uses the blob already: who
//!   knows a hash gets nothing by it.

use std::collections::HashSet;

use bowline_sbp::blob::{Blob, BlobRef};
use bowline_sbp::cid::Cid;
use bowline_sbp::id::{Seq, SessionId};
use bowline_sbp::media::references;
use bowline_sbp::message::Message;

use super::error::Attempt;
use super::history;
use super::pool::Connection;
use super::rows::{column, corrupt, uuid};

/// Stores blobs of turns that were accepted.
pub(super) async fn accept(c: &Connection, session: SessionId, blobs: &[Blob]) -> Attempt<()> {
    for blob in blobs {
        keep(c, blob, session, 0).await?;
    }
    Ok(())
}

/// Stores the blobs of an entry, and its uses of blobs that the session has already.
pub(super) async fn append(
    c: &Connection,
    session: SessionId,
    seq: Seq,
    message: &Message,
    blobs: &[Blob],
) -> Attempt<()> {
    for blob in blobs {
        keep(c, blob, session, seq).await?;
    }
    for reference in references(message) {
        if is_used(c, session, reference.cid).await? {
            add_use(c, reference.cid, session, seq).await?;
        }
    }
    Ok(())
}

/// Turns of these sessions have ended. With the last one, what only requests used is deleted: it may have
/// come with an earlier turn. Only of sessions that this transaction has written.
pub(super) const RELEASE: &str = "
    WITH freed AS (
        DELETE FROM blob_uses u USING sessions s
        WHERE s.id = ANY ($1::uuid[]) AND s.written_in = pg_current_xact_id()
          AND u.session = s.id AND u.seq = 0
          AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session = s.id)
        RETURNING u.hash, u.session)
    DELETE FROM blobs b WHERE b.hash IN (SELECT hash FROM freed)
      AND NOT EXISTS (SELECT 1 FROM blob_uses o WHERE o.hash = b.hash
                      AND (o.seq > 0 OR o.session NOT IN (SELECT session FROM freed)))";

/// The same for one session.
pub(super) async fn release(c: &Connection, session: SessionId) -> Attempt<()> {
    c.execute(RELEASE, &[&vec![uuid(session.as_bytes())]]).await.map(|_| ())
}

/// Deletes the uses of a log's entries after `seq`, and blobs that have no use left.
pub(super) async fn delete_uses_after(c: &Connection, session: SessionId, seq: Seq) -> Attempt<()> {
    let sql = "WITH gone AS (DELETE FROM blob_uses WHERE session = $1 AND seq > $2 RETURNING hash)
               SELECT DISTINCT hash FROM gone";
    let mut hashes: Vec<Vec<u8>> = Vec::new();
    for row in c.query(sql, &[&uuid(session.as_bytes()), &(seq as i64)]).await? {
        hashes.push(column(&row, "hash")?);
    }
    if hashes.is_empty() {
        return Ok(());
    }
    hashes.sort();
    let lock = "SELECT 1 FROM blobs WHERE hash = ANY ($1) ORDER BY hash FOR UPDATE";
    c.query(lock, &[&hashes]).await?;
    let delete = "DELETE FROM blobs b WHERE hash = ANY ($1)
                  AND NOT EXISTS (SELECT 1 FROM blob_uses u WHERE u.hash = b.hash)";
    c.execute(delete, &[&hashes]).await.map(|_| ())
}

/// Those of the references that name a blob which the session uses, by hash and size.
pub(super) async fn known(
    c: &Connection,
    session: SessionId,
    all: &[BlobRef],
) -> Attempt<HashSet<BlobRef>> {
    let mut known = HashSet::new();
    for &blob in all {
        let sql = "SELECT 1 FROM blobs WHERE hash = $1 AND length(bytes) = $2";
        // No blob is larger than PostgreSQL's numbers for lengths.
        let size = i32::try_from(blob.size).unwrap_or(-1);
        let is_stored = c.query_opt(sql, &[&&blob.cid.as_bytes()[..], &size]).await?.is_some();
        if is_stored && is_used(c, session, blob.cid).await? {
            known.insert(blob);
        }
    }
    Ok(known)
}

/// The blobs with these hashes that the session uses.
pub(super) async fn read(c: &Connection, session: SessionId, wanted: &[Cid]) -> Attempt<Vec<Blob>> {
    let mut found = Vec::new();
    for &cid in wanted {
        if !is_used(c, session, cid).await? {
            continue;
        }
        let sql = "SELECT bytes FROM blobs WHERE hash = $1";
        let row = c.query_opt(sql, &[&&cid.as_bytes()[..]]).await?;
        let row = row.ok_or_else(|| corrupt("a blob that is used and missing"))?;
        found.push(Blob { cid, bytes: column::<Vec<u8>>(&row, "bytes")?.into() });
    }
    Ok(found)
}

async fn keep(c: &Connection, blob: &Blob, session: SessionId, seq: Seq) -> Attempt<()> {
    let hash = &blob.cid.as_bytes()[..];
    // Most are there already: their bytes need not be sent.
    if c.query_opt("SELECT 1 FROM blobs WHERE hash = $1", &[&hash]).await?.is_none() {
        let sql = "INSERT INTO blobs (hash, bytes) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        c.execute(sql, &[&hash, &&*blob.bytes]).await?;
    }
    add_use(c, blob.cid, session, seq).await
}

async fn add_use(c: &Connection, cid: Cid, session: SessionId, seq: Seq) -> Attempt<()> {
    let sql = "INSERT INTO blob_uses (hash, session, seq) VALUES ($1, $2, $3)
               ON CONFLICT DO NOTHING";
    let (hash, key, seq) = (&cid.as_bytes()[..], uuid(session.as_bytes()), seq as i64);
    c.execute(sql, &[&hash, &key, &seq]).await.map(|_| ())
}

/// Whether an entry or an accepted turn of the session uses the blob; entries that it shares with
/// the session it was forked from count.
async fn is_used(c: &Connection, session: SessionId, cid: Cid) -> Attempt<bool> {
    let sql = "SELECT 1 FROM blob_uses
               WHERE hash = $1 AND session = $2 AND seq >= $3 AND seq <= $4 LIMIT 1";
    let hash = &cid.as_bytes()[..];
    let own = uuid(session.as_bytes());
    if c.query_opt(sql, &[&hash, &own, &0i64, &0i64]).await?.is_some() {
        return Ok(true);
    }
    for range in history::whole(c, session).await? {
        let (first, last) = (range.after as i64 + 1, range.to.min(i64::MAX as u64) as i64);
        if c.query_opt(sql, &[&hash, &range.key, &first, &last]).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
