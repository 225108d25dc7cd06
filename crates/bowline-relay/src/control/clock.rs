//! The wall clock in seconds since 1970, the unit of tokens and of the registry.

use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
