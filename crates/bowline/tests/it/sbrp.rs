//! SBRP end to end with the built binary: control plane, relay, daemon and `connect`, each its own
//! process that is killed, restarted or stopped.

mod canary;
pub(crate) mod gateway;
mod goodbye;
mod keys;
mod losses;
mod pairing;
mod refusals;
mod several_relays;
mod tunnel;
pub(crate) mod world;
