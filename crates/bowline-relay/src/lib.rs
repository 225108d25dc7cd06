//! The relay server and the control plane of the Sideband Relay Protocol.
//!
//! Two halves that share nothing but the protocol crate: [`relay`] routes frames and holds no
//! signing key, [`control`] knows users and daemons and signs tokens. The relay learns keys the
//! way any relay does, from the published key set.

pub mod control;
pub mod relay;
