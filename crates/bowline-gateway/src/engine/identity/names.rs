//! What users, keys and devices may be called, and the scopes that they may have.

use bowline_sbp::access::{Role, Scope, Scopes};
use bowline_store::User;

/// The longest name of a user or key.
pub(crate) const LONGEST_NAME: usize = 64;

/// Whether a character may be in such a name.
pub(crate) fn fits_in_name(c: char) -> bool {
    c.is_alphanumeric() || "-_.@ ".contains(c)
}

/// Scopes that a credential of the user cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key of a {} has one or more of {}", .0.as_str(), .0.most())]
pub struct BadScopes(Role);

/// The scopes of a new credential of a user: those that were asked for, else all but `admin`.
pub(crate) fn scopes_for(user: &User, asked: Option<Scopes>) -> Result<Scopes, BadScopes> {
    let scopes = asked.unwrap_or_else(|| Scopes::all().without(Scope::Admin));
    match scopes.is_empty() || scopes.both(user.role.most()) != scopes {
        true => Err(BadScopes(user.role)),
        false => Ok(scopes),
    }
}
