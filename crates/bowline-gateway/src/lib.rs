//! The SBP gateway: an OpenAI-compatible front that keeps sessions alive.
//!
//! The path of a turn: [`http`] or [`attach`] parses it, the [`session`]'s actor takes it on and has
//! the [`engine`] ask a [`model`], the store keeps what came of it, and [`attach`] delivers.

mod attach;
pub mod auth;
mod clock;
pub mod config;
mod engine;
mod gateway;
pub mod http;
pub mod limits;
pub mod mcp;
mod meters;
pub mod model;
mod router;
mod serve;
mod session;
mod socket;
mod translate;

pub use gateway::{AtWork, Gateway, StartError};
pub use translate::BadTranslator;
