//! Reading logs.

use std::collections::HashSet;

use bowline_sbp::blob::{Blob, BlobRef};
use bowline_sbp::cid::Cid;
use bowline_sbp::context::SessionLog;
use bowline_sbp::id::{Seq, SessionId};

use super::{Postgres, blobs, history};
use crate::{Entry, Log, Result};

#[async_trait::async_trait]
impl Log for Postgres {
    async fn history(&self, id: SessionId) -> Result<SessionLog> {
        self.pool.snapshot(move |c| async move { history::for_models(&c, id).await }).await
    }

    async fn entries_after(&self, id: SessionId, after: Seq, limit: u32) -> Result<Vec<Entry>> {
        self.pool.snapshot(move |c| async move { history::after(&c, id, after, limit).await }).await
    }

    async fn entries_before(&self, id: SessionId, before: Seq, limit: u32) -> Result<Vec<Entry>> {
        self.pool
            .snapshot(move |c| async move { history::before(&c, id, before, limit).await })
            .await
    }

    async fn known_blobs(&self, id: SessionId, all: Vec<BlobRef>) -> Result<HashSet<BlobRef>> {
        if all.is_empty() {
            return Ok(HashSet::new());
        }
        let all = &all;
        self.pool.snapshot(move |c| async move { blobs::known(&c, id, all).await }).await
    }

    async fn blobs(&self, id: SessionId, wanted: Vec<Cid>) -> Result<Vec<Blob>> {
        let wanted = &wanted;
        self.pool.snapshot(move |c| async move { blobs::read(&c, id, wanted).await }).await
    }
}
