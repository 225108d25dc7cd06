//! The promises of a bus, with every adapter, and what each does when its server fails.

mod backends;
mod contract;
mod fallback;
mod postgres;
mod receiving;
mod redis;
mod servers;
mod speed;
