//! L3: roaming.

mod bundle;
mod export;
mod family;
mod fork;
mod handoff;
mod import;
mod token;

use crate::check::Check;

pub(super) const TABLES: &[&[Check]] = &[
    export::CHECKS,
    token::CHECKS,
    bundle::CHECKS,
    import::CHECKS,
    handoff::CHECKS,
    fork::CHECKS,
    family::CHECKS,
];
