//! The suite against small servers and relays with known faults: each fault is found by the checks that are
//! about it, and by no others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod habits;
mod relay;
mod relay_faults;
mod server;
mod stand_in;
