//! Clients that stay connected: for Rust programs and for the command line.
//!
//! | module | what |
//! |---|---|
//! | [`surface`] | a surface attached to one session of a gateway (SBP L2) |
//! | [`relay`] | the two ends of a relay: daemon, client, and TCP tunnels between them (SBRP) |

pub mod relay;
pub mod surface;
