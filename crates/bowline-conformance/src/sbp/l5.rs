//! L5: the MCP bridge.

mod calls;
mod device;
mod ends;

use crate::check::Check;

pub(super) const TABLES: &[&[Check]] = &[calls::CHECKS, ends::CHECKS];
