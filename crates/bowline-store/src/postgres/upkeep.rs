//! Periodic maintenance, health and shutdown.

use bowline_sbp::budget::Day;
use jiff::Timestamp;
use uuid::Uuid;

use super::{Postgres, approvals};
use crate::{Error, Result, Upkeep};

#[async_trait::async_trait]
impl Upkeep for Postgres {
    async fn forget_keys(&self, before: Timestamp) -> Result<u64> {
        self.forget_old_keys(before).await
    }

    async fn forget_bundles(&self, _before: Timestamp) -> Result<u64> {
        Err(Error::Unavailable("not built yet".into()))
    }

    async fn forget_approvals(&self, before: Timestamp) -> Result<u64> {
        self.forget_old_approvals(before).await
    }

    async fn forget_days(&self, _before: Day) -> Result<u64> {
        Err(Error::Unavailable("not built yet".into()))
    }

    async fn forget_audit(&self, _before: Timestamp) -> Result<u64> {
        Err(Error::Unavailable("not built yet".into()))
    }

    async fn settle(&self) -> Result<()> {
        Ok(())
    }

    async fn purge_words(&self, _steps: u32) -> Result<bool> {
        Ok(true)
    }

    async fn take_notice(&self, name: &'static str) -> Result<bool> {
        approvals::take_notice(self, name).await
    }

    async fn check(&self) -> Result<()> {
        // A real write: a standby or a full disk would still answer a query.
        let sql = "INSERT INTO secrets (name, secret) VALUES ('probe', $1)
                   ON CONFLICT (name) DO UPDATE SET secret = excluded.secret";
        let random = Uuid::new_v4();
        self.pool
            .write(move |c| async move { c.execute(sql, &[&&random.as_bytes()[..8]]).await })
            .await?;
        Ok(())
    }

    /// Never: PostgreSQL recovers by itself, and a commit whose result is unknown is looked up.
    async fn failed(&self) -> Error {
        std::future::pending().await
    }

    async fn close(&self) {
        self.committer.close().await;
        self.pool.close();
    }
}
