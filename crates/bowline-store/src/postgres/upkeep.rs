//! Periodic maintenance, health and shutdown.
//!
//! Rows are deleted in steps of limited size, so that nobody waits long for their locks. Replicas may
//! do it at the same time: each passes over the rows that another one deletes.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::budget::Day;
use jiff::Timestamp;
use uuid::Uuid;

use super::error::Attempt;
use super::pool::{Answer, Connection};
use super::rows::millis;
use super::{Postgres, approvals, audit, exports, secrets, usage};
use crate::{Error, Result, Upkeep};

/// The most rows deleted in one step.
const FORGOTTEN_AT_ONCE: u64 = 256;

/// The key of an unfinished turn is needed until the turn ends.
const FORGET_KEYS: &str = "
    DELETE FROM keys WHERE (scope, key) IN (
        SELECT scope, key FROM keys WHERE created_at < $1
        AND (turn_id IS NULL OR NOT EXISTS (SELECT 1 FROM turns WHERE id = turn_id))
        ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)";

/// So is an approval of an unfinished turn.
const FORGET_APPROVALS: &str = "
    DELETE FROM approvals WHERE number IN (
        SELECT number FROM approvals WHERE expires_at < $1
        AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = approvals.turn_id)
        ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)";

#[async_trait::async_trait]
impl Upkeep for Postgres {
    async fn take_upkeep(&self, task: &'static str, every: Duration) -> Result<bool> {
        let sql = "INSERT INTO upkeep (task, done_at) VALUES ($1, clock_timestamp())
                   ON CONFLICT (task) DO UPDATE SET done_at = clock_timestamp()
                   WHERE abs(extract(epoch FROM clock_timestamp() - upkeep.done_at)) * 1000 >= $2::bigint";
        let every = i64::try_from(every.as_millis()).unwrap_or(i64::MAX);
        let take = move |tx: Arc<Connection>| async move {
            Ok(tx.execute(sql, &[&task, &every]).await? == 1)
        };
        self.pool.write(take).await
    }

    async fn forget_keys(&self, before: Timestamp) -> Result<u64> {
        let step =
            move |tx: Arc<Connection>| async move { forget_some(&tx, FORGET_KEYS, before).await };
        self.in_steps(FORGOTTEN_AT_ONCE, step).await
    }

    async fn forget_bundles(&self, before: Timestamp) -> Result<u64> {
        let step =
            move |tx: Arc<Connection>| async move { exports::drop_expired(&tx, before).await };
        self.in_steps(exports::DROPPED_AT_ONCE, step).await
    }

    async fn forget_approvals(&self, before: Timestamp) -> Result<u64> {
        let step = move |tx: Arc<Connection>| async move {
            forget_some(&tx, FORGET_APPROVALS, before).await
        };
        self.in_steps(FORGOTTEN_AT_ONCE, step).await
    }

    async fn forget_days(&self, before: Day) -> Result<u64> {
        let step = move |tx: Arc<Connection>| async move { usage::forget(&tx, before).await };
        self.in_steps(usage::FORGOTTEN_AT_ONCE, step).await
    }

    async fn forget_audit(&self, before: Timestamp) -> Result<u64> {
        let step = move |tx: Arc<Connection>| async move { audit::forget(&tx, before).await };
        self.in_steps(audit::FORGOTTEN_AT_ONCE, step).await
    }

    async fn settle(&self) -> Result<()> {
        self.later.write().await
    }

    async fn purge_words(&self, _: u32) -> Result<bool> {
        // Words are deleted with their entries, and the index keeps no list of them beside itself
        // (`fastupdate = off`). What is left in its file is the server's to clean: see `words`.
        Ok(true)
    }

    async fn take_notice(&self, name: &'static str) -> Result<bool> {
        approvals::take_notice(self, name).await
    }

    async fn check(&self) -> Result<()> {
        let random = Uuid::new_v4();
        self.pool.write(move |tx| async move { secrets::probe(&tx, random.as_bytes()).await }).await
    }

    async fn failed(&self) -> Error {
        // A server that is away may come back: every operation says that it is not there, and nothing
        // that was acknowledged depends on this process.
        std::future::pending().await
    }

    async fn close(&self) {
        self.committer.close().await;
        if let Err(error) = self.later.write().await {
            tracing::warn!(%error, "what waited to be written is not written");
        }
        self.pool.close();
    }
}

async fn forget_some(tx: &Connection, sql: &str, before: Timestamp) -> Attempt<u64> {
    tx.execute(sql, &[&millis(before), &(FORGOTTEN_AT_ONCE as i64)]).await
}

impl Postgres {
    /// Runs maintenance in steps of a limited number of rows, each a transaction of its own.
    pub(super) async fn in_steps<F: Answer<u64>>(
        &self,
        at_once: u64,
        step: impl Fn(Arc<Connection>) -> F,
    ) -> Result<u64> {
        let mut all = 0;
        loop {
            let some = self.pool.write(&step).await?;
            all += some;
            if some < at_once {
                return Ok(all);
            }
        }
    }
}
