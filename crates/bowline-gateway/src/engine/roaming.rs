//! Sessions that leave, arrive, split and change hands (SBP-L3).
//!
//! Each of these is one step of the store: all of it happens or nothing (G7, G8). What is made here
//! is the bundle that travels and the words that go with it.

mod export;
mod import;
mod keys;
mod lineage;
mod split;

pub(crate) use self::import::Source;
pub(crate) use self::keys::Keyring;
pub(crate) use self::split::Handoff;
