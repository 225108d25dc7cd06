//! The relay server and the control plane of the Sideband Relay Protocol.
//!
//! The two modules share only the protocol crate, the normal form of an issuer's name, and who may read metrics. [`relay`] routes frames and holds no signing key;
//! [`control`] stores users and daemons and signs tokens. The relay gets the public keys from the
//! published key set (JWKS), even when both run in one process.

pub mod control;
mod issuer_name;
mod metrics_access;
pub mod relay;

pub use metrics_access::MetricsAccess;
