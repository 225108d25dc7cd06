//! Users, their credentials, and sessions that they share.

use bowline_sbp::access::{CredentialId, Role, Scopes, Share};
use bowline_sbp::budget::OwnLimits;
use bowline_sbp::id::{SessionId, UserId};
use bowline_sbp::session::TokenHash;
use jiff::Timestamp;

/// The most users, and the most keys of one user that are not revoked.
pub(crate) const MOST_USERS: i64 = 10_000;
pub(crate) const MOST_KEYS: i64 = 1000;
/// How many revoked and expired keys of one user are still listed.
pub(crate) const ENDED_KEYS: i64 = 100;

/// A person who uses the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    /// Unique, whatever its case.
    pub name: String,
    pub role: Role,
    pub created_at: Timestamp,
    /// From then on none of its credentials opens anything.
    pub disabled_at: Option<Timestamp>,
    /// Its own limits, in place of those of the configuration.
    pub limits: OwnLimits,
}

/// A key of a user: `bk_<id>.<secret>`, or a paired device's own key. The secret is stored as its
/// hash.
#[derive(Debug, Clone, PartialEq)]
pub struct UserKey {
    pub id: CredentialId,
    pub user: UserId,
    /// What its user calls it.
    pub name: String,
    /// Of a device: the hash of something that nobody has.
    pub secret: TokenHash,
    /// The public key of the paired device that this is the credential of.
    pub device: Option<[u8; 32]>,
    pub scopes: Scopes,
    /// Patterns of agents and models that it may be used for; empty: all.
    pub agents: Vec<String>,
    pub models: Vec<String>,
    /// Its own limits, in place of those of the configuration.
    pub limits: OwnLimits,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

impl UserKey {
    /// Whether it opens anything at that time, if its user is not disabled.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

/// A session that is shared with a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedSession {
    pub session: SessionId,
    pub user: UserId,
    pub share: Share,
}
