//! The clients over real sockets, against scripted servers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod endings;
mod gateway;
mod moves;
mod relay;
mod surface;
