//! Trunks: the log entries of deleted sessions that forks still share.
//!
//! Apart, because deleting a session must never delete data of another one. A trunk has no token and no
//! counters; it is deleted with the last fork that needs it.
//!
//! Invariants
//! - For all entries there is either a session or a trunk with their id, never both.
//! - A fork locks its origin's row until it commits: the origin, and with it all entries that it shares with
//!   others, are there until then. Who deletes the origin waits for the fork, and looks for forks only afterwards.
//! - Who deletes a fork locks its base before it looks for others that share it: of two that delete the last two
//!   forks of a trunk, one sees that the other fork is gone.
//! - Rows are locked from a fork towards its bases, never the other way: nobody waits in a circle.

use bowline_sbp::id::{Seq, SessionId};
use uuid::Uuid;

use super::error::Attempt;
use super::pool::Connection;
use super::rows::{column, uuid};
use super::{blobs, words};

/// Deletes the row of a session; entries that forks share become a trunk.
pub(super) async fn leave(c: &Connection, id: SessionId) -> Attempt<()> {
    let key = uuid(id.as_bytes());
    c.execute(
        "WITH gone AS (DELETE FROM sessions WHERE id = $1
                       RETURNING id, number, user_id, agent_id, base, base_seq)
         INSERT INTO trunks (id, number, user_id, agent_id, base, base_seq) SELECT * FROM gone",
        &[&key],
    )
    .await?;
    prune(c, key).await
}

/// Deletes the entries of a trunk that no fork shares; if none is left, also the trunk, and
/// continues with its base.
async fn prune(c: &Connection, mut trunk: Uuid) -> Attempt<()> {
    // Whoever prunes the same trunk for another fork has ended before this looks at it.
    while c.query_opt("SELECT 1 FROM trunks WHERE id = $1 FOR UPDATE", &[&trunk]).await?.is_some() {
        let shared = shared_up_to(c, trunk).await?;
        let after = shared.unwrap_or(0) as i64;
        let id = SessionId::from_bytes(trunk.into_bytes());
        words::forget(c, trunk, shared.unwrap_or(0)).await?;
        blobs::delete_uses_after(c, id, shared.unwrap_or(0)).await?;
        c.execute("DELETE FROM entries WHERE session = $1 AND seq > $2", &[&trunk, &after]).await?;
        if shared.is_some() {
            return Ok(());
        }
        let row = c.query_one("DELETE FROM trunks WHERE id = $1 RETURNING base", &[&trunk]).await?;
        let Some(base) = column::<Option<Uuid>>(&row, "base")? else { return Ok(()) };
        // A session that is just being deleted is a trunk after this wait.
        let session = "SELECT 1 FROM sessions WHERE id = $1 FOR KEY SHARE";
        if c.query_opt(session, &[&base]).await?.is_some() {
            return Ok(());
        }
        trunk = base;
    }
    Ok(())
}

/// The last position of this log that any fork shares.
async fn shared_up_to(c: &Connection, key: Uuid) -> Attempt<Option<Seq>> {
    let row = c
        .query_one(
            "SELECT greatest((SELECT max(base_seq) FROM sessions WHERE base = $1),
                             (SELECT max(base_seq) FROM trunks WHERE base = $1)) AS shared",
            &[&key],
        )
        .await?;
    Ok(column::<Option<i64>>(&row, "shared")?.map(|seq| seq as Seq))
}
