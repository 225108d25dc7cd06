//! The wall clock, for timestamps only: order and timeouts never depend on it (G14).

use jiff::Timestamp;

/// Now, as coarse as it is stored: what is answered at once and what is read back later agree.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}
