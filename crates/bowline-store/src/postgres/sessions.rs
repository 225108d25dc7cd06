//! Creates, finds and deletes sessions.

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
impl Sessions for Postgres {
    async fn create_session(
        &self,
        session: NewSession,
        key: Option<IdempotencyKey>,
    ) -> Result<Created> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn session(&self, id: SessionId) -> Result<Option<Session>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn session_by_token(&self, token: TokenHash) -> Result<Option<Session>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn sessions(&self, page: Page) -> Result<Vec<Session>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn named(&self, user: UserId, text: String) -> Result<Vec<Session>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn attached(&self, id: SessionId) -> Result<Vec<AttachmentRow>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn known(&self, key: IdempotencyKey) -> Result<Option<(SessionId, KnownKey)>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn load(&self, id: SessionId) -> Result<Option<Loaded>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn commit(&self, commit: Arc<Commit>) -> Result<(), CommitError> {
        Err(CommitError::NotStored("not built yet".into()))
    }
}
