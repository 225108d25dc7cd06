//! The gateway against real sockets, a real store and a scripted upstream.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod bench;
mod bounds;
mod disk;
mod failing;
mod garbage;
mod idempotency;
mod l1_completions;
mod l1_history;
mod l1_pages;
mod l1_sessions;
mod l1_streaming;
mod l2_attach;
mod l2_delivery;
mod l2_lifecycle;
mod operations;
mod phone;
mod steering;
mod upstream;
mod upstreams;
