//! The gateway against real sockets, a real store and a scripted upstream.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod l2_attach;
mod l2_delivery;
mod l2_lifecycle;
mod steering;
mod upstream;
