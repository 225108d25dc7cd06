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
