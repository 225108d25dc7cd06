//! Results of a full-text search in what was said.

use bowline_sbp::id::{Seq, SessionId};
use jiff::Timestamp;

/// A message that contains all words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// A session whose log has the message. If it was deleted, a fork that shares the message.
    pub session: SessionId,
    /// The title of that session.
    pub title: Option<String>,
    pub seq: Seq,
    pub role: String,
    pub created_at: Timestamp,
    /// The part of the message around the words, on one line.
    pub snippet: String,
}
