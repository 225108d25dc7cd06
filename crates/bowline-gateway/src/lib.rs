//! The SBP gateway: an OpenAI-compatible HTTP API with durable sessions.
//!
//! The path of a turn: [`http`] or [`attach`] parses it, the [`session`] actor accepts it and has
//! the [`engine`] call a [`model`], the store keeps the result, and [`attach`] delivers it.

mod attach;
pub mod auth;
mod clock;
pub mod config;
pub mod devices;
mod engine;
mod federation;
mod gateway;
mod health;
pub mod http;
mod identity;
pub mod identity_file;
pub mod limits;
mod liveness;
pub mod mcp;
mod meters;
pub mod model;
mod router;
pub mod secrets;
mod serve;
mod session;
mod socket;
pub mod stored_identity;
mod translate;
mod upkeep;

pub use devices::{Device, Devices};
pub use federation::FederationError;
pub use gateway::{AtWork, Gateway, StartError};
pub use identity::Signer;
pub use liveness::KeepError;
pub use translate::BadTranslator;
