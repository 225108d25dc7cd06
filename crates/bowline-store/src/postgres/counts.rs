//! What replicas count of users and keys, for the limits that are not by day.

use bowline_sbp::id::UserId;
use bowline_sbp::session::ReplicaId;
use uuid::Uuid;

use super::error::Attempt;
use super::pool::Connection;
use super::rows::{self, column, corrupt};
use crate::size::whole;
use crate::{Counted, LiveCount};

/// Stores what a replica counts now. Nothing is kept of those who count nothing any more.
pub(super) async fn report(tx: &Connection, me: ReplicaId, counts: &[LiveCount]) -> Attempt<()> {
    let (mut users, mut keys): (Vec<Option<Uuid>>, Vec<&str>) = Default::default();
    for count in counts {
        match &count.of {
            Counted::User(user) => (users.push(Some(user.0)), keys.push("")),
            Counted::Key(key) => (users.push(None), keys.push(key.as_str())),
        };
    }
    // In two steps: a replica writes only its own rows.
    tx.execute(
        "DELETE FROM replica_counts c
         USING unnest($2::uuid[], $3::text[]) AS n (user_id, user_key)
         WHERE c.replica = $1 AND c.user_key = n.user_key
           AND c.user_id IS NOT DISTINCT FROM n.user_id",
        &[&me.0, &users, &keys],
    )
    .await?;
    let numbers = |of: fn(&LiveCount) -> i64| counts.iter().map(of).collect::<Vec<_>>();
    let (minutes, requests, turns) = (
        numbers(|count| count.minute),
        numbers(|count| whole(count.requests)),
        numbers(|count| whole(count.turns)),
    );
    tx.execute(
        "INSERT INTO replica_counts (replica, user_id, user_key, minute, requests, turns)
         SELECT $1, n.* FROM unnest($2::uuid[], $3::text[], $4::bigint[], $5::bigint[],
                                    $6::bigint[]) AS n (user_id, user_key, minute, requests, turns)
         WHERE n.requests > 0 OR n.turns > 0",
        &[&me.0, &users, &keys, &minutes, &requests, &turns],
    )
    .await
    .map(drop)
}

/// What other replicas have reported.
pub(super) async fn of_others(
    db: &Connection,
    me: ReplicaId,
    minute: i64,
) -> Attempt<Vec<LiveCount>> {
    let sql = "SELECT user_id, user_key, minute, requests, turns FROM replica_counts c
               WHERE replica <> $1 AND (turns > 0 OR minute >= $2)
                 AND EXISTS (SELECT 1 FROM replicas r WHERE r.id = c.replica AND NOT r.dead)";
    let mut counts = Vec::new();
    for row in db.query(sql, &[&me.0, &minute]).await? {
        let of = match column::<Option<Uuid>>(&row, "user_id")? {
            Some(user) => Counted::User(UserId(user)),
            None => {
                let key: &str = column(&row, "user_key")?;
                Counted::Key(key.parse().map_err(|_| corrupt("the id of a key"))?)
            }
        };
        counts.push(LiveCount {
            of,
            minute: column(&row, "minute")?,
            requests: rows::number(&row, "requests")?,
            turns: rows::number(&row, "turns")?,
        });
    }
    Ok(counts)
}

/// Forgets what dead replicas reported.
pub(super) async fn forget_dead(tx: &Connection) -> Attempt<()> {
    let sql = "DELETE FROM replica_counts c WHERE NOT EXISTS
                   (SELECT 1 FROM replicas r WHERE r.id = c.replica AND NOT r.dead)";
    tx.execute(sql, &[]).await.map(drop)
}
