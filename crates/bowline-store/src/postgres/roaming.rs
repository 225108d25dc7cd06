//! Export, import, fork and lineage.

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
impl Roaming for Postgres {
    async fn pack(&self, id: SessionId) -> Result<Option<Packed>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn keep_export(&self, export: NewExport) -> Result<Export> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn export(&self, id: ExportId) -> Result<Option<(Export, Option<Vec<u8>>)>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn exports(&self, session: SessionId) -> Result<Vec<Export>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn import(&self, import: NewImport) -> Result<Derived> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn made_under(&self, key: IdempotencyKey) -> Result<Option<(Derived, Edge)>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn fork(&self, fork: NewFork) -> Result<Derived> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn family(&self, session: String, user: UserId, most: u32) -> Result<Family> {
        Err(Error::Unavailable("not built yet".into()))
    }
}
