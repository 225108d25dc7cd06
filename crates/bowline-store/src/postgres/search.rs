//! Full-text search in what users and agents said.

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
impl Search for Postgres {
    async fn index(&self, steps: u32) -> Result<bool> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn search(&self, user: UserId, words: Vec<String>, limit: u32) -> Result<Vec<Hit>> {
        Err(Error::Unavailable("not built yet".into()))
    }
}

/// Deletes the words of a log's entries after `after`.
pub(super) async fn forget(
    _: &super::pool::Connection,
    _log: SessionId,
    _after: Seq,
) -> super::error::Attempt<()> {
    Ok(())
}
