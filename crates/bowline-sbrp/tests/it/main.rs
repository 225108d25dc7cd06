//! Client, relay and daemon together, over a network that misbehaves.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fuzz;
mod ledger;
mod model;
mod socket;
mod tamper;
mod world;
