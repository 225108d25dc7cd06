//! One file a command.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod keys;
pub(crate) mod serve;
pub(crate) mod sessions;
