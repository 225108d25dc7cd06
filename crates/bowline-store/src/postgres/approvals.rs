//! Approvals.

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
impl Approvals for Postgres {
    async fn approvals(&self, id: SessionId) -> Result<Vec<Approval>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn tool_pins(&self) -> Result<Vec<ToolPin>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn pin_tools(&self, pins: Vec<ToolPin>, at: Timestamp) -> Result<()> {
        Err(Error::Unavailable("not built yet".into()))
    }
}
