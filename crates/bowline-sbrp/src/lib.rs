//! The Sideband Relay Protocol without I/O.
//!
//! Everything here is a value or a pure function: no sockets, no clock, no randomness. Relay,
//! daemon, client and tests share these types, so a wire detail is written down once.

pub mod api;
pub mod client;
pub mod control;
mod crypto;
pub mod daemon;
pub mod device_auth;
pub mod frame;
pub mod handshake;
pub mod id;
pub mod identity;
pub mod impossible;
pub mod pairing;
pub mod peer;
pub mod relay;
pub mod renewal;
pub mod revocation;
pub mod sealed;
pub mod time;
#[cfg(feature = "token")]
pub mod token;
pub mod tunnel;
#[cfg(test)]
mod vectors;
