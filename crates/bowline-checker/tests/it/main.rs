//! Histories of a gateway that does everything right, and what becomes of them when one thing is
//! changed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod model;
mod mutations;
