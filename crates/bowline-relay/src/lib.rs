//! The relay server and the control plane of the Sideband Relay Protocol.
//!
//! The two modules share only the protocol crate, and who may read metrics. [`relay`] routes frames and holds no signing key;
//! [`control`] stores users and daemons and signs tokens. The relay gets the public keys from the
//! published key set (JWKS), even when both run in one process.

pub mod control;
mod metrics_access;
pub mod relay;

pub use metrics_access::MetricsAccess;
