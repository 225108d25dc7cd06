//! Any request at any replica: three gateway processes on one PostgreSQL and one Redis, and a client at each.
//!
//! What clients are told while gateways, servers and networks die under load is in `fire`; here, each scene
//! shows one thing, with a deadline.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod approvals;
mod client;
mod failover;
mod identity;
mod installation;
mod keys;
mod limits;
mod mid_sentence;
mod phone;
#[path = "../it/process.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use the rest")]
mod process;
mod racers;
#[path = "../fire/replica.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use the rest")]
mod replica;
mod secrets;
mod sessions;
mod tether;
mod tls;
mod tool_calls;
