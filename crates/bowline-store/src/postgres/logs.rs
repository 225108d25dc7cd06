//! Reading logs.

#![allow(clippy::wildcard_imports, unused_imports, unused_variables)]
use super::Postgres;
use crate::*;
use bowline_sbp::access::*;
use bowline_sbp::approval::Approval;
use bowline_sbp::blob::*;
use bowline_sbp::budget::*;
use bowline_sbp::cid::Cid;
use bowline_sbp::context::SessionLog;
use bowline_sbp::delivery::Logged;
use bowline_sbp::id::*;
use bowline_sbp::session::{AttachmentRow, Fence, KnownKey};
use jiff::Timestamp;
use std::collections::HashSet;
use std::sync::Arc;

/// Not built yet.
#[async_trait::async_trait]
impl Log for Postgres {
    async fn history(&self, id: SessionId) -> Result<SessionLog> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn entries_after(&self, id: SessionId, after: Seq, limit: u32) -> Result<Vec<Entry>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn entries_before(&self, id: SessionId, before: Seq, limit: u32) -> Result<Vec<Entry>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn known_blobs(&self, id: SessionId, all: Vec<BlobRef>) -> Result<HashSet<BlobRef>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn blobs(&self, id: SessionId, wanted: Vec<Cid>) -> Result<Vec<Blob>> {
        Err(Error::Unavailable("not built yet".into()))
    }
}
