//! Replicas and their leases (G19).
//!
//! A lease is judged by the clock of the database alone. Time only decides who may be declared dead; that a
//! stopped process writes nothing when it wakes is the work of the fence.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::id::SessionId;
use bowline_sbp::session::{Fence, ReplicaId};
use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::backoff::Backoff;
use super::connect::PostgresConfig;
use super::error::error_of;
use super::pool::Connection;
use super::rows::{self, column, corrupt, uuid};
use super::{Postgres, counts};
use crate::{Error, Leases, ReplicaLease, Result};

/// Extends a lease by three seconds from now.
const RENEW: &str = "
    UPDATE replicas SET expires_at = clock_timestamp() + interval '3 seconds'
    WHERE id = $1 AND NOT dead";
/// How long a renewal may take: after that the lease has nearly expired.
const RENEWAL: Duration = Duration::from_secs(2);

#[async_trait::async_trait]
impl Leases for Postgres {
    fn is_shared(&self) -> bool {
        true
    }

    async fn register(&self, me: ReplicaId) -> Result<()> {
        let register = move |c: Arc<Connection>| async move {
            c.execute(
                "INSERT INTO replicas (id, expires_at)
                 VALUES ($1, clock_timestamp() + interval '3 seconds')
                 ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at
                 WHERE NOT replicas.dead",
                &[&me.0],
            )
            .await?;
            // Sessions of a replica that is not here are as free as those of a dead one.
            c.execute(
                "DELETE FROM replicas
                 WHERE dead AND expires_at < clock_timestamp() - interval '1 day'",
                &[],
            )
            .await?;
            counts::forget_dead(&c).await
        };
        self.pool.write(register).await
    }

    async fn renew(&self, me: ReplicaId) -> Result<bool> {
        self.renewer.renew(me).await
    }

    async fn replicas(&self) -> Result<Vec<ReplicaLease>> {
        let sql = "SELECT id, (extract(epoch FROM expires_at) * 1000000)::bigint AS expires_at,
                          expires_at < clock_timestamp() AS has_expired
                   FROM replicas WHERE NOT dead ORDER BY id";
        let read = move |c: Arc<Connection>| async move {
            let mut found = Vec::new();
            for row in c.query(sql, &[]).await? {
                let at = Timestamp::from_microsecond(column(&row, "expires_at")?);
                found.push(ReplicaLease {
                    id: ReplicaId(column(&row, "id")?),
                    expires_at: Some(at.map_err(|_| corrupt("a time out of range"))?),
                    has_expired: column(&row, "has_expired")?,
                });
            }
            Ok(found)
        };
        self.pool.read(read).await
    }

    async fn declare_dead(&self, replica: ReplicaId, seen: Timestamp) -> Result<bool> {
        let sql = "UPDATE replicas SET dead = true
                   WHERE id = $1 AND NOT dead AND expires_at < clock_timestamp()
                     AND (extract(epoch FROM expires_at) * 1000000)::bigint = $2";
        let declare = move |c: Arc<Connection>| async move {
            Ok(c.execute(sql, &[&replica.0, &seen.as_microsecond()]).await? == 1)
        };
        self.pool.write(declare).await
    }

    async fn retire(&self, replica: ReplicaId) -> Result<()> {
        let sql = "UPDATE replicas SET dead = true WHERE id = $1";
        self.pool
            .write(move |c| async move { c.execute(sql, &[&replica.0]).await })
            .await
            .map(|_| ())
    }

    async fn owner(&self, id: SessionId) -> Result<Option<ReplicaId>> {
        let sql = "SELECT r.id FROM sessions s JOIN replicas r ON r.id = s.owner AND NOT r.dead
                   WHERE s.id = $1";
        let find = move |c: Arc<Connection>| async move {
            let row = c.query_opt(sql, &[&uuid(id.as_bytes())]).await?;
            row.map(|row| Ok(ReplicaId(column(&row, "id")?))).transpose()
        };
        self.pool.read(find).await
    }

    async fn release(&self, me: ReplicaId, mut sessions: Vec<(SessionId, Fence)>) -> Result<()> {
        sessions.sort();
        let ids: Vec<Uuid> = sessions.iter().map(|(id, _)| uuid(id.as_bytes())).collect();
        let fences: Vec<i64> = sessions.iter().map(|(_, fence)| *fence as i64).collect();
        // Not those that another replica has taken since.
        let sql = "UPDATE sessions s SET owner = NULL
                   FROM unnest($2::uuid[], $3::bigint[]) AS c (session, fence)
                   WHERE s.id = c.session AND s.owner = $1 AND s.fence = c.fence";
        let (ids, fences) = (&ids, &fences);
        let release =
            move |c: Arc<Connection>| async move { c.execute(sql, &[&me.0, ids, fences]).await };
        self.pool.write(release).await.map(|_| ())
    }

    async fn unfinished(&self, me: ReplicaId) -> Result<Vec<(SessionId, u64)>> {
        let sql = "SELECT s.id, count(*) AS turns FROM turns t JOIN sessions s ON s.id = t.session
                   WHERE s.owner IS NULL OR s.owner = $1 OR NOT EXISTS
                       (SELECT 1 FROM replicas r WHERE r.id = s.owner AND NOT r.dead)
                   GROUP BY s.id, s.number ORDER BY s.number";
        let find = move |c: Arc<Connection>| async move {
            let mut found = Vec::new();
            for row in c.query(sql, &[&me.0]).await? {
                let id = SessionId::from_bytes(rows::id(&row, "id")?);
                found.push((id, rows::number(&row, "turns")?));
            }
            Ok(found)
        };
        self.pool.read(find).await
    }
}

/// Renews the lease of a replica on a connection of its own, which no load of this process occupies.
#[derive(Debug)]
pub(super) struct LeaseRenewer {
    config: PostgresConfig,
    link: Mutex<Option<(Client, Statement)>>,
    backoff: Backoff,
}

impl LeaseRenewer {
    pub(super) fn new(config: PostgresConfig) -> Self {
        Self { config, link: Mutex::new(None), backoff: Backoff::default() }
    }

    /// Extends the lease of a replica. False: it was declared dead, and stays so.
    pub(super) async fn renew(&self, me: ReplicaId) -> Result<bool> {
        let late = || Error::Unavailable("the database does not answer".into());
        tokio::time::timeout(RENEWAL, self.renew_in_time(me)).await.map_err(|_| late())?
    }

    async fn renew_in_time(&self, me: ReplicaId) -> Result<bool> {
        let mut link = self.link.lock().await;
        // Taken out: if this is cancelled or fails, the connection is not used again.
        let (client, renew) = match link.take().filter(|(client, _)| !client.is_closed()) {
            Some(link) => link,
            None => self.connect().await?,
        };
        let renewed = client.execute(&renew, &[&me.0]).await.map_err(|error| error_of(&error))?;
        *link = Some((client, renew));
        Ok(renewed == 1)
    }

    async fn connect(&self) -> Result<(Client, Statement)> {
        self.backoff.wait().await;
        let connected = async {
            let (client, _) = self.config.connect().await?;
            let renew = client.prepare(RENEW).await?;
            Ok((client, renew))
        };
        let connected = connected.await;
        match &connected {
            Ok(_) => self.backoff.succeeded(),
            Err(_) => self.backoff.failed(),
        }
        connected.map_err(|error| error_of(&error))
    }
}
