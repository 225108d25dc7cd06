//! The promises of a bus, with every adapter, and what each does when its server fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backends;
mod contract;
mod fallback;
mod postgres;
mod receiving;
mod redis;
mod servers;
mod speed;
mod way;
