//! Replicas and their leases.

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
impl Leases for Postgres {
    async fn register(&self, me: ReplicaId) -> Result<()> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn renew(&self, me: ReplicaId) -> Result<bool> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn replicas(&self) -> Result<Vec<ReplicaLease>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn declare_dead(&self, replica: ReplicaId, seen: Timestamp) -> Result<bool> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn retire(&self, replica: ReplicaId) -> Result<()> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn owner(&self, id: SessionId) -> Result<Option<ReplicaId>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn release(&self, me: ReplicaId, sessions: Vec<(SessionId, Fence)>) -> Result<()> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn unfinished(&self, me: ReplicaId) -> Result<Vec<(SessionId, u64)>> {
        Err(Error::Unavailable("not built yet".into()))
    }
}
