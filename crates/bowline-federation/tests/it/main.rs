//! Peers over real sockets: honest ones, and those that lie.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod captured_log;
mod discovery;
mod dns;
mod documents;
mod honest;
mod hostile;
mod http2;
mod name_server;
mod scripted;
mod trackers;
mod world;
