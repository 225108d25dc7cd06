//! The memories of agents.

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
impl Memories for Postgres {
    async fn remember(
        &self,
        agent: MemoryOwner,
        memories: Vec<NewMemory>,
        instead: bool,
    ) -> Result<Vec<Memory>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn memories(
        &self,
        agent: MemoryOwner,
        before: Option<MemoryId>,
        limit: u32,
    ) -> Result<Vec<Memory>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn recall(
        &self,
        agent: MemoryOwner,
        words: Vec<String>,
        limit: u32,
    ) -> Result<Vec<Memory>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn memories_for_turn(
        &self,
        agent: MemoryOwner,
        words: Vec<String>,
        limit: u32,
    ) -> Result<TurnMemories> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn forget(&self, agent: MemoryOwner, memory: Option<MemoryId>) -> Result<u64> {
        Err(Error::Unavailable("not built yet".into()))
    }
}
