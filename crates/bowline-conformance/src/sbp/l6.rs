//! L6: federation.

mod asked;
mod imports;
mod lies;
mod manifest;
mod origin;
mod tracker;

use crate::check::Check;

pub(super) const TABLES: &[&[Check]] = &[
    manifest::CHECKS,
    asked::CHECKS,
    tracker::CHECKS,
    imports::CHECKS,
    origin::CHECKS,
    lies::CHECKS,
];
