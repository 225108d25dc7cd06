//! Roaming: export, import, fork and handoff of sessions (SBP-L3).
//!
//! Each of these is one transaction of the store (G7, G8). This module makes the bundles and the
//! messages that go with them.

mod export;
mod import;
mod keys;
mod lineage;
mod remembered;
mod split;

pub(super) use self::export::too_large;
pub(crate) use self::import::{Import, Source};
pub(crate) use self::keys::Keyring;
pub(crate) use self::split::Handoff;
