//! The clients over real sockets, against a gateway that does what a test tells it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod endings;
mod gateway;
mod surface;
