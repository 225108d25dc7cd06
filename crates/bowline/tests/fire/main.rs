//! The gateway under fire: kill -9, closing surfaces, takeovers, stops. What clients were told is
//! compared with what is there, by `bowline-checker`.
//!
//! Short by default; `BOWLINE_SOAK=1` makes every test long. Each prints its seed and the command
//! that runs it again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod caller;
mod cancels;
mod cut_off;
mod devices;
mod drains;
mod faults;
mod imports;
mod installation;
mod kills;
mod load;
mod mid_sentence;
mod owners;
mod passage;
#[path = "../it/process.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use the rest")]
mod process;
mod proxy;
mod races;
mod reach;
mod record;
#[path = "../it/sbrp/world.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use the rest")]
mod relay_world;
mod replica;
mod replicas;
#[allow(dead_code, reason = "shared with the other tests, which use the rest")]
mod seed;
mod stops;
mod surface;
mod through_a_relay;
mod world;
