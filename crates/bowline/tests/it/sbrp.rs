//! The whole of SBRP with the built binary: control plane, relay, daemon and `connect`, each a
//! process of its own that is killed, restarted and told to stop.

mod canary;
mod keys;
mod losses;
mod refusals;
mod tunnel;
pub(crate) mod world;
