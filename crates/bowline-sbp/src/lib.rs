//! The State Bridge Protocol without I/O.
//!
//! Everything here is a value or a pure function: no sockets, no clock, no randomness. Servers,
//! clients and tests share these types, so a wire detail is written down once.

pub mod access;
pub mod api;
pub mod approval;
pub mod blob;
pub mod budget;
pub mod bundle;
pub mod cid;
pub mod completion;
pub mod context;
pub mod conversation;
pub mod delivery;
pub mod error;
pub mod federation;
pub mod frame;
pub mod gateway_key;
pub mod id;
pub mod json;
pub mod keepalive;
pub mod lifecycle;
pub mod media;
pub mod message;
pub mod roaming_token;
pub mod session;
pub mod signed_object;
pub mod surface;
pub mod title;
pub mod tool_result;
pub mod translate;

/// The wire version advertised to surfaces (the public repository calls the same wire `0.9`).
pub const SBP_VERSION: &str = "1.2";
/// The older name of the same wire, answered to a surface that asks for it.
pub const SBP_VERSION_0_9: &str = "0.9";
/// The level that `docs/conformance.md` claims, and the rule by which it does. A test keeps them together.
pub const SBP_LEVEL: &str = "L6";
/// The level of a gateway that takes part in no federation.
pub const SBP_LEVEL_ALONE: &str = "L5";
