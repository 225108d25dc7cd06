//! The checks of SBP, by level and subject.

mod l1;
mod l2;
mod l3;
mod l4;
mod l5;
mod l6;
mod unseen;

use crate::check::Check;
use crate::report::Unseen;

/// All checks, by their ids within each table.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    let levels = [l1::TABLES, l2::TABLES, l3::TABLES, l4::TABLES, l5::TABLES, l6::TABLES];
    levels.into_iter().flatten().flat_map(|table| table.iter())
}

/// The requirements that cannot be seen from outside.
pub fn unseen() -> impl Iterator<Item = Unseen> {
    unseen::UNSEEN.iter().copied()
}
