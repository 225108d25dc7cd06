//! The store's promises, run against every backend, and what only SQLite has to show.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backends;
mod contract;
mod devices;
mod fixture;
mod forks;
mod handoffs;
mod memory;
mod model;
mod roaming;
mod sqlite;
