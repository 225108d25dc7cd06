//! Commits of live sessions: the only way to write one, in one transaction and under its lease (G19).
//!
//! Most are gathered by [`super::committer`]. A commit with blobs, a handoff or a deletion takes several steps and
//! is rare: it has a transaction of its own, which writes the session's row first and so holds its lock.

use std::sync::Arc;

use bowline_sbp::id::SessionId;
use bowline_sbp::media::references;
use bowline_sbp::session::{Commit, CommitError, Placed, Write};
use uuid::Uuid;

use super::error::{Attempt, Fault};
use super::fold::Rows;
use super::pool::Connection;
use super::rows::{column, uuid};
use super::{batch, blobs, handoff, sessions};
use crate::Error;
use crate::failpoint;

/// Whether a commit needs a transaction of its own.
pub(super) fn is_rare(commit: &Commit) -> bool {
    commit.writes.iter().any(|write| match write {
        Write::HandOff(_) | Write::Delete => true,
        Write::Accept { blobs, .. } => !blobs.is_empty(),
        Write::Append { entries, .. } => entries.iter().any(has_blobs),
        _ => false,
    })
}

pub(super) fn has_blobs(placed: &Placed) -> bool {
    !placed.entry.blobs.is_empty() || !references(&placed.entry.message).is_empty()
}

/// Writes one commit. False: it is fenced, and nothing was written.
pub(super) async fn alone(c: &Connection, commit: &Arc<Commit>, writer: Uuid) -> Attempt<bool> {
    let hands_over = commit.writes.iter().any(|write| matches!(write, Write::HandOff(_)));
    if hands_over {
        failpoint::begin("handoff");
    }
    let mut rows = Rows::default();
    rows.add(commit)?;
    let commits = std::slice::from_ref(commit);
    let mut verdict = (false, false);
    for step in batch::steps(commits, &rows, writer, false)? {
        let found = c.query(step.sql, &step.params()).await?;
        if let Some(row) = found.first() {
            verdict = (column(row, "applied")?, column(row, "now")?);
        }
    }
    match verdict {
        (false, _) => return Ok(false),
        // It was applied before.
        (true, false) => return Ok(true),
        (true, true) => {}
    }
    if hands_over {
        failpoint::pass("retired");
    }
    let session = commit.session;
    for write in &commit.writes {
        match write {
            Write::Accept { blobs, .. } => blobs::accept(c, session, blobs).await?,
            Write::Append { entries, .. } => {
                for placed in entries.iter().filter(|placed| has_blobs(placed)) {
                    add_blobs(c, session, placed).await?;
                }
            }
            Write::HandOff(handed) => handoff::write(c, session, handed).await?,
            Write::Delete => sessions::forget(c, session).await?,
            _ => {}
        }
    }
    if !rows.ended.is_empty() {
        blobs::release(c, session).await?;
    }
    if hands_over {
        failpoint::pass("commit");
    }
    Ok(true)
}

/// What it means for a commit that its transaction failed.
pub(super) fn refusal(fault: Fault, commit: &Commit) -> CommitError {
    match (fault.duplicate(), &commit.make) {
        (Some("sessions_token"), _) => return CommitError::TokenTaken,
        (Some("keys_pkey"), Some(_)) => return CommitError::KeyTaken,
        // Another request took the key after the owner had looked it up: a retry finds its result.
        (Some("keys_pkey"), None) => {
            return CommitError::Refused("the idempotency key was used already".into());
        }
        _ => {}
    }
    match fault {
        Fault::Unknown(reason) => CommitError::Unknown(reason),
        fault => match Error::from(fault) {
            Error::Fatal(reason) => CommitError::Fatal(reason),
            Error::Corrupt(reason) => CommitError::Refused(reason),
            error => CommitError::NotStored(error.to_string()),
        },
    }
}

/// Stores the blobs of an entry and counts those that no earlier entry of its session uses. Not by the size
/// in a reference: that is a text from the caller, who may never have sent the blob.
pub(super) async fn add_blobs(c: &Connection, session: SessionId, placed: &Placed) -> Attempt<()> {
    let entry = &placed.entry;
    blobs::append(c, session, placed.seq, &entry.message, &entry.blobs).await?;
    c.execute(
        "UPDATE sessions SET stored_bytes = least(1::bigint << 60, stored_bytes + (
             SELECT coalesce(sum(octet_length(b.bytes)), 0)
             FROM blob_uses used JOIN blobs b ON b.hash = used.hash
             WHERE used.session = $1 AND used.seq = $2 AND NOT EXISTS (
                 SELECT 1 FROM blob_uses earlier
                 WHERE earlier.hash = used.hash AND earlier.session = $1
                   AND earlier.seq > 0 AND earlier.seq < $2)))
         WHERE id = $1",
        &[&uuid(session.as_bytes()), &(placed.seq as i64)],
    )
    .await
    .map(|_| ())
}
