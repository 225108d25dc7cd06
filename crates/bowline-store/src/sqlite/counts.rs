//! What replicas count of users and keys, for the limits that are not by day.

use bowline_sbp::id::UserId;
use bowline_sbp::session::ReplicaId;
use rusqlite::{Connection, params};

use super::rows::corrupt;
use crate::size::whole;
use crate::{Counted, LiveCount, Result};

/// Stores what a replica counts now. Nothing is kept of those who count nothing any more.
pub(super) fn report(conn: &Connection, me: ReplicaId, counts: &[LiveCount]) -> Result<()> {
    let mut put = conn.prepare_cached(
        "INSERT OR REPLACE INTO replica_counts (replica, user, user_key, minute, requests, turns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let mut drop = conn.prepare_cached(
        "DELETE FROM replica_counts WHERE replica = ?1 AND user = ?2 AND user_key = ?3",
    )?;
    let me = me.0.as_bytes();
    for count in counts {
        let (user, key) = columns(&count.of);
        if count.is_none() {
            drop.execute(params![me, user, key])?;
        } else {
            let (requests, turns) = (whole(count.requests), whole(count.turns));
            put.execute(params![me, user, key, count.minute, requests, turns])?;
        }
    }
    Ok(())
}

/// What other replicas have reported.
pub(super) fn of_others(conn: &Connection, me: ReplicaId, minute: i64) -> Result<Vec<LiveCount>> {
    let mut statement = conn.prepare_cached(
        "SELECT user, user_key, minute, requests, turns FROM replica_counts
         WHERE replica <> ?1 AND (turns > 0 OR minute >= ?2)
           AND replica IN (SELECT id FROM replicas WHERE NOT dead)",
    )?;
    let mut rows = statement.query(params![me.0.as_bytes(), minute])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        let (user, key): (Vec<u8>, String) = (row.get(0)?, row.get(1)?);
        let number = |at: usize| -> Result<u64> { Ok(row.get::<_, i64>(at)?.max(0) as u64) };
        counts.push(LiveCount {
            of: counted(&user, &key)?,
            minute: row.get(2)?,
            requests: number(3)?,
            turns: number(4)?,
        });
    }
    Ok(counts)
}

/// Forgets what dead replicas reported.
pub(super) fn forget_dead(conn: &Connection) -> Result<()> {
    let sql = "DELETE FROM replica_counts
               WHERE replica NOT IN (SELECT id FROM replicas WHERE NOT dead)";
    conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}

fn columns(of: &Counted) -> (&[u8], &str) {
    match of {
        Counted::User(user) => (user.as_bytes(), ""),
        Counted::Key(key) => (&[], key.as_str()),
    }
}

fn counted(user: &[u8], key: &str) -> Result<Counted> {
    match key {
        "" => {
            let user = <[u8; 16]>::try_from(user).map_err(|_| corrupt("a count of nobody"))?;
            Ok(Counted::User(UserId::from_bytes(user)))
        }
        key => Ok(Counted::Key(key.parse().map_err(|_| corrupt("the id of a key"))?)),
    }
}
