//! Rows of what users and keys have used.

use bowline_sbp::access::CredentialId;
use bowline_sbp::budget::{Day, Spent};
use bowline_sbp::id::UserId;

/// What a user, and the key that was shown, have used on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpentToday {
    pub user: Spent,
    pub key: Spent,
}

/// One day of a user, or of one of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayOfUse {
    pub day: Day,
    pub user: UserId,
    /// `None`: the user in all, with and without keys.
    pub key: Option<CredentialId>,
    pub spent: Spent,
}

/// Whose requests and running turns are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Counted {
    User(UserId),
    Key(CredentialId),
}

/// What one replica counts of a user or key, for the limits that are not by day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveCount {
    pub of: Counted,
    /// The number of the minute of the clock that the requests were counted in.
    pub minute: i64,
    pub requests: u64,
    /// Turns that run.
    pub turns: u64,
}

impl LiveCount {
    /// Whether there is nothing to be counted.
    pub(crate) fn is_none(&self) -> bool {
        self.requests == 0 && self.turns == 0
    }
}
