//! Roaming: export, import, fork and handoff of sessions (SBP-L3).
//!
//! Each of these is one transaction of the store (G7, G8). This module makes the bundles and the
//! messages that go with them.

mod ancestry;
mod arrival;
mod brought;
mod export;
mod given;
mod import;
mod keys;
mod lineage;
mod moved;
mod origin;
mod remembered;
mod split;
mod token;

pub(crate) use self::arrival::ABANDONED;
pub(crate) use self::brought::Arriving;
pub(super) use self::export::too_large;
pub(crate) use self::given::{NotReserved, ShownForBundle, end_stale_actor, given_nothing};
pub(crate) use self::import::{Import, Source};
pub(crate) use self::keys::Keyring;
pub(crate) use self::split::Handoff;
