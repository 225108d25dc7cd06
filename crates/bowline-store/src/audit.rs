//! What was done at the gateway, and by whom: ids only, never what was said.

use bowline_sbp::id::UserId;
use jiff::Timestamp;

/// The time of one tally, in milliseconds.
pub(crate) const HOUR: i64 = 3_600_000;

/// One thing that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub at: Timestamp,
    /// Whose credential it was, if that is known.
    pub user: Option<UserId>,
    /// What was shown: the id of a key, `local`, `configured`, `open`, `session`, `device`, `none` or
    /// `wrong`; `gateway` for what the gateway does by itself.
    pub credential: String,
    pub action: String,
    /// Ids of what it was done to.
    pub object: String,
    pub result: String,
    /// Where the request came from.
    pub address: String,
    /// How often. More than once only for tallies of one hour.
    pub times: u64,
    /// It is a tally: entries of one hour that are equal but for time and object are one.
    pub is_tally: bool,
}

/// Which entries are wanted, newest first.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    pub since: Option<Timestamp>,
    pub user: Option<UserId>,
    pub limit: u32,
}
