//! Relay and control plane from outside: real sockets, real clients, real tokens.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod control;
mod relay;
