//! Relay and control plane over real sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod control;
//! Everything from outside: real sockets, real clients, real tokens.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod relay;
