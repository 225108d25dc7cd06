//! The store's contract, tested with every backend, and tests of SQLite alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backends;
mod backup;
mod blobs;
mod copies;
mod devices;
mod federation;
mod fixture;
mod forks;
mod handoffs;
mod keys;
mod leases;
mod live;
mod loading;
mod log;
mod memory;
mod model;
mod pairing;
mod postgres;
mod postgres_server;
mod replicas;
mod roaming;
mod schema_3;
mod search;
mod sessions;
mod sharing;
mod sqlite;
mod tether;
mod titles;
mod upkeep;
mod usage;
mod users;
