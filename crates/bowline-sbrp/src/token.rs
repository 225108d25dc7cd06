//! Tokens: how the control plane says who may connect as what, and how a relay checks it.
//!
//! A relay validates and never issues (SBRP-RELAY-01); the two halves share the names of claims
//! and nothing else. Pure: keys and the time are passed in, fetching and caching keys is not here.
//!
//! Invariants
//! - EdDSA only, our `typ` only, keys we were given only: what a token says of itself decides
//!   nothing.
//! - The first broken rule is the one reported, in the order SBRP-TOKEN-01 to 16.
//! - No text of an error holds anything out of a token.

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

/// Which rule a token breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token is too long or not three readable parts")]
    Malformed,
    #[error("the token is of another type")]
    Type,
    #[error("the token names no key that is known here")]
    UnknownKey,
    #[error("the token's signature does not hold")]
    Signature,
    #[error("the token is not meant for a relay")]
    Audience,
    #[error("the token is from another issuer")]
    Issuer,
    #[error("the token does not say from when and until when it is good")]
    Times,
    #[error("the token has expired")]
    Expired,
    #[error("the token is of an unknown version")]
    Version,
    #[error("the token's role is neither daemon nor client")]
    Role,
    #[error("the token names no daemon")]
    Daemon,
    #[error("the client's token names no user or no session")]
    Client,
    #[error("the token is for another region")]
    Region,
    #[error("the client's token is good for too long")]
    Lifetime,
    #[error("the token's scopes are not a list of names")]
    Scopes,
    #[error("the token's limits are unusable")]
    Limits,
}

impl TokenError {
    /// The HTTP status that refuses the upgrade. 403 is for a token that is good, but elsewhere:
    /// asking for a new one would not help.
    pub fn status(self) -> u16 {
        match self {
            Self::Region => 403,
            _ => 401,
        }
    }
}

#[cfg(test)]
mod tests;
