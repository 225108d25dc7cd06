//! Daemons, clients and a relay under fire: connections are cut, processes killed, the relay killed
//! and restarted, all under traffic. What is said is numbered inside the encryption.
//!
//! Promised, and watched by every end all the time:
//! - nothing is reordered, repeated or lost within a session that goes on;
//! - a loss shows: the session ends and says why;
//! - two daemons of one identity do not fight;
//! - when all have left, nothing is left: no pair, no connection, no session.
//!
//! Short by default. With `BOWLINE_SOAK=1`, 1,500 connections are cut, and daemons, clients or the relay
//! are ended 500 times. Each end is a runtime of its own in this process, thrown away with all that runs in
//! it. Each test prints its seed and the command that runs it again.

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
