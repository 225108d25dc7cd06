//! A tracker over HTTP, and gateways that announce to it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod announcements;
mod operations;
mod world;
