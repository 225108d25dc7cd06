//! Secrets of the installation.

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
impl Secrets for Postgres {
    async fn secret(&self, name: &'static str, fresh: Vec<u8>) -> Result<Vec<u8>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn signing_keys(&self, fresh: Vec<u8>, at: Timestamp) -> Result<Vec<StoredSecret>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn add_signing_key(&self, fresh: Vec<u8>, at: Timestamp) -> Result<Vec<StoredSecret>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn all_secrets(&self) -> Result<Vec<StoredSecret>> {
        Err(Error::Unavailable("not built yet".into()))
    }
    async fn replace_secrets(&self, all: Vec<StoredSecret>) -> Result<()> {
        Err(Error::Unavailable("not built yet".into()))
    }
}
