//! The SBP gateway: an OpenAI-compatible front that keeps sessions alive.
//!
//! The path of a turn: [`http`] or [`attach`] parses it, [`engine`] takes it on and runs it
//! through a [`model`], the store keeps it, [`hub`] wakes whoever watches, [`attach`] delivers.

mod attach;
pub mod auth;
mod clock;
pub mod config;
mod engine;
mod errands;
mod gateway;
pub mod http;
mod hub;
mod input;
mod lanes;
pub mod limits;
pub mod mcp;
mod meters;
pub mod model;
mod serve;
mod shown;
mod socket;
mod translate;

pub use gateway::{AtWork, Gateway, StartError};
pub use translate::BadTranslator;
