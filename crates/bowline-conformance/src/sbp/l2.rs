//! L2: Tether and resume.

mod attach;
mod delivery;
mod keepalive;
mod lifecycle;
pub(super) mod live;
mod order;
mod surfaces;
mod tether;

use crate::check::Check;

pub(super) const TABLES: &[&[Check]] = &[
    attach::CHECKS,
    tether::CHECKS,
    delivery::CHECKS,
    live::CHECKS,
    lifecycle::CHECKS,
    surfaces::CHECKS,
    keepalive::CHECKS,
    order::CHECKS,
];
