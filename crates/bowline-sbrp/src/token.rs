//! Tokens: the control plane issues them, a relay checks them.
//!
//! A relay validates tokens and never issues them (SBRP-RELAY-01); the two halves share only the
//! names of claims. Pure: keys and the time are passed in; fetching and caching keys is elsewhere.
//!
//! Invariants
//! - Only EdDSA, only our `typ`, only keys of the given key set: the token's own header cannot
//!   choose anything else.
//! - The first broken rule is the one reported, in the order SBRP-TOKEN-01 to 16.
//! - No error text contains anything from a token.

mod check;
mod issue;
mod keys;

pub use check::{Admission, ClientPass, DaemonPass, Relay};
pub use issue::{PresenceGrant, SessionGrant, TokenSigner, jwk};
pub use keys::{KeySet, KeySetError};

const TYPE: &str = "sbrp-relay+jwt";
const AUDIENCE: &str = "sideband-relay";
const RESUME: &str = "session:resume";
const CREATE: &str = "session:create";
/// Claims of our own, which others ignore: the user who owns a daemon, and which of the daemon's
/// presences a token belongs to.
const OWNER: &str = "own";
const EPOCH: &str = "epoch";

/// The rule that a token breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token is too long or not three readable parts.
    #[error("the token is too long or not three readable parts")]
    Malformed,
    /// The token is of another type.
    #[error("the token is of another type")]
    Type,
    /// The token names no key that is known here.
    #[error("the token names no key that is known here")]
    UnknownKey,
    /// The token's signature does not hold.
    #[error("the token's signature does not hold")]
    Signature,
    /// The token is not meant for a relay.
    #[error("the token is not meant for a relay")]
    Audience,
    /// The token is from another issuer.
    #[error("the token is from another issuer")]
    Issuer,
    /// The token does not say from when and until when it is good.
    #[error("the token does not say from when and until when it is good")]
    Times,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is of an unknown version.
    #[error("the token is of an unknown version")]
    Version,
    /// The token's role is neither daemon nor client.
    #[error("the token's role is neither daemon nor client")]
    Role,
    /// The token names no daemon.
    #[error("the token names no daemon")]
    Daemon,
    /// The client's token names no user or no session.
    #[error("the client's token names no user or no session")]
    Client,
    /// The token is for another region.
    #[error("the token is for another region")]
    Region,
    /// The client's token is good for too long.
    #[error("the client's token is good for too long")]
    Lifetime,
    /// The token's scopes are not a list of names.
    #[error("the token's scopes are not a list of names")]
    Scopes,
    /// The token's limits are unusable.
    #[error("the token's limits are unusable")]
    Limits,
}

impl TokenError {
    /// The HTTP status that refuses the WebSocket upgrade. 403 means that the token is valid, but
    /// not at this relay: a new token would not help.
    pub fn status(self) -> u16 {
        match self {
            Self::Region => 403,
            _ => 401,
        }
    }
}

#[cfg(test)]
mod tests;
