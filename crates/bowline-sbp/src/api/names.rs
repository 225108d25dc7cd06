//! Bodies of the HTTP interface: titles of sessions, attached surfaces, full-text search.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{Seq, SessionId};

/// Body of `PATCH /v1/sessions/{id}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionPatch {
    /// At most 120 characters. Empty: back to the automatic title.
    pub title: String,
}

/// A surface that is attached to a session now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AttachedSurface {
    pub surface_id: Option<String>,
    pub device_type: String,
}

/// Answer to `GET /v1/sessions/search`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SearchResults {
    /// The newest session first, and in each session the newest message first.
    pub hits: Vec<SearchHit>,
    /// Whether all messages were searched. If not, some are not indexed yet: ask again.
    pub complete: bool,
}

/// A message in which all words occur.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SearchHit {
    pub session_id: SessionId,
    /// The title of that session.
    pub title: Option<String>,
    /// The message's position in the log.
    pub seq: Seq,
    /// `user` or `assistant`.
    pub role: String,
    pub created_at: Timestamp,
    /// The part of the message around the words, on one line.
    pub snippet: String,
}
