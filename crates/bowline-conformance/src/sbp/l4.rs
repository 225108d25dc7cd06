//! L4: surfaces.

mod adapted;
mod context;

use crate::check::Check;

pub(super) const TABLES: &[&[Check]] = &[context::CHECKS, adapted::CHECKS];
