//! The wall clock, for timestamps only: order and timeouts never depend on it (G14).

use jiff::Timestamp;

/// Now, in whole milliseconds as it is stored: a timestamp in a response and the same one read back
/// later are equal.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}
