//! The clients over real sockets, against servers that do what a test tells them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod endings;
mod gateway;
mod relay;
mod surface;
