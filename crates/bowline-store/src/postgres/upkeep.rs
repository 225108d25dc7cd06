//! Maintenance.

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
impl Upkeep for Postgres {
    async fn forget_keys(&self, before: Timestamp) -> Result<u64> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn forget_bundles(&self, before: Timestamp) -> Result<u64> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn forget_approvals(&self, before: Timestamp) -> Result<u64> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn forget_days(&self, before: Day) -> Result<u64> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn forget_audit(&self, before: Timestamp) -> Result<u64> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn settle(&self) -> Result<()> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn purge_words(&self, steps: u32) -> Result<bool> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn take_notice(&self, name: &'static str) -> Result<bool> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn check(&self) -> Result<()> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn failed(&self) -> crate::Error {
        std::future::pending().await
    }
    async fn close(&self) {}
}
