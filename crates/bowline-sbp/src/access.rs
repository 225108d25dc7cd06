//! Who may do what: users, what their credentials allow, and one table that decides.
//!
//! Every request is made by a credential of a user. Handlers ask [`may`] and decide nothing
//! themselves. What is not the user's own, and not shared with them, does not exist for them (G20).
//!
//! Pure: whoever asks has looked up the credential and the session.

mod credential;
mod scope;
mod table;

pub use self::credential::{Credential, CredentialId, CredentialKind, Role, Share};
pub use self::scope::{Scope, Scopes, UnknownScope};
pub use self::table::{Action, Authorization, Relation, may};

use crate::id::UserId;
use uuid::Uuid;

/// The user who runs the gateway. There from the start; others are added.
pub const OWNER: UserId = UserId(Uuid::nil());
