//! L1: stateful proxy.

mod endings;
mod forwarding;
mod restarts;
mod sessions;
mod streams;
mod turns;

use crate::check::Check;

pub(super) const TABLES: &[&[Check]] = &[
    sessions::CHECKS,
    turns::CHECKS,
    forwarding::CHECKS,
    streams::CHECKS,
    endings::CHECKS,
    restarts::CHECKS,
];
