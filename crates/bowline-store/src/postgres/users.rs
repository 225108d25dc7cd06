//! Users, their keys, and shared sessions.

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
impl Users for Postgres {
    async fn add_user(&self, user: User) -> Result<()> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn users(&self) -> Result<Vec<User>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn disable_user(&self, user: UserId, at: Option<Timestamp>) -> Result<Option<User>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn limit_user(&self, user: UserId, limits: OwnLimits) -> Result<Option<User>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn add_key(&self, key: UserKey) -> Result<Option<CredentialId>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn keys(&self, user: Option<UserId>) -> Result<Vec<UserKey>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn key(&self, id: CredentialId) -> Result<Option<(UserKey, User)>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn key_of_device(&self, device: [u8; 32]) -> Result<Option<(UserKey, User)>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn revoke_key(&self, id: CredentialId, at: Timestamp) -> Result<bool> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn keys_used(&self, keys: Vec<(CredentialId, Timestamp)>) -> Result<()> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn share(&self, session: SessionId, user: UserId, share: Option<Share>) -> Result<()> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn shares(&self, session: SessionId) -> Result<Vec<SharedSession>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn replace_token(
        &self,
        session: SessionId,
        before: u64,
        token: TokenHash,
        at: Timestamp,
    ) -> Result<bool> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn shared_with(&self, session: SessionId, user: UserId) -> Result<Option<Share>> {
        Err(Error::Unavailable("not built yet".into()))
    }
}
