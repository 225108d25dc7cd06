//! Fault injection with daemons, clients and a relay: connections are cut, processes killed, the
//! relay killed and restarted, all under traffic. Messages carry sequence numbers inside the
//! encryption.
//!
//! Checked at both ends all the time:
//! - no message is reordered, repeated or lost within a session that continues;
//! - a loss is visible: the session ends with a reason;
//! - two daemons with the same identity do not keep replacing each other;
//! - when all have disconnected, the relay has no pair, connection or session left.
//!
//! Short by default. With `BOWLINE_SOAK=1`, 1,500 connections are cut, and daemons, clients or the relay
//! are ended 500 times. The relay and each end are processes of their own, and are ended with `kill -9`
//! (the relay half of the time with SIGTERM). Each test prints its seed and the command that runs it again.

mod ends;
mod fire;
mod plant;
mod proxy;
mod record;
#[path = "../fire/seed.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use the rest")]
mod seed;
mod slow;
mod twins;
