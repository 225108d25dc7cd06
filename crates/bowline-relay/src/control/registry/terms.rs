//! On what terms tokens are given, and what the registry says for one.

use super::keys::Signing;
use super::relays::{AssignedRelay, Configured};

/// How many daemons a user may have and make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewDaemons {
    /// At once, not counting revoked ones.
    pub most: u32,
    /// New ones in 24 hours: each leaves something behind that stays.
    pub per_day: u32,
}

/// On what terms presence tokens are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceTerms {
    pub limits: NewDaemons,
    pub configured: Configured,
    /// When the token is issued and when it expires, in seconds since 1970.
    pub now: u64,
    pub until: u64,
}

/// The data for a client's session token.
#[derive(Debug)]
pub struct SessionTerms {
    /// The user's id in tokens.
    pub user: String,
    /// Where the daemon is; `None`: at the configured relay.
    pub relay: Option<AssignedRelay>,
    /// The epoch of the daemon's presence.
    pub epoch: u64,
    pub signing: Signing,
}

/// The data for a presence token.
#[derive(Debug)]
pub struct Renewed {
    pub daemon: String,
    /// The owner's user id in tokens.
    pub owner: String,
    pub resumable: bool,
    /// Where the daemon connects to; `None`: to the configured relay.
    pub relay: Option<AssignedRelay>,
    pub epoch: u64,
    /// Whether the daemon is new.
    pub created: bool,
    pub signing: Signing,
}
