//! Who is let in (SBRP-TOKEN): every rule is broken in one place, in a token that is good elsewhere.
//!
//! In which order the rules are looked at is not seen: the answer is 401 or 403 whichever is broken.

mod claims;
mod header;
mod keys;
mod limits;

use crate::check::Check;

pub(super) const TABLES: &[&[Check]] =
    &[header::CHECKS, keys::CHECKS, claims::CHECKS, limits::CHECKS];
