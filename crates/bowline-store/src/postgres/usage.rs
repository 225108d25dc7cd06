//! What users and keys have used.

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
impl Usage for Postgres {
    fn spend(&self, spender: Spender, spent: Spent, at: Timestamp) {}
    async fn spent_on(&self, day: Day, spender: Spender) -> Result<SpentToday> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn stored_bytes(&self, user: UserId) -> Result<u64> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn days_of_use(&self, since: Day, user: Option<UserId>) -> Result<Vec<DayOfUse>> {
        Err(Error::Unavailable("not built yet".into()))
    }
}
