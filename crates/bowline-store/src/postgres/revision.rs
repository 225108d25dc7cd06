//! Counts changes of what gateways keep in memory.
//!
//! Invariant: whatever changes users, keys, shares, tokens of sessions, secrets or definitions of tools, or adds
//! a code that pairs a device,
//! calls [`bump`] in its own transaction, after its own writes: the row is locked until the commit, and
//! whoever holds it waits for nobody.

use super::error::Attempt;
use super::pool::Connection;

pub(super) async fn bump(tx: &Connection) -> Attempt<()> {
    tx.execute("UPDATE access_revision SET revision = revision + 1", &[]).await.map(drop)
}

pub(super) async fn read(db: &Connection) -> Attempt<u64> {
    let row = db.query_one("SELECT revision FROM access_revision", &[]).await?;
    Ok(row.try_get::<_, i64>(0)? as u64)
}
