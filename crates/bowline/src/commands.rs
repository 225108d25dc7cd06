//! One module per command.

pub(crate) mod approvals;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod connect;
pub(crate) mod control;
pub(crate) mod daemon;
pub(crate) mod daemons;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod fork;
mod given;
pub(crate) mod handoff;
pub(crate) mod help;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod keys;
pub(crate) mod lineage;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod relay;
pub(crate) mod serve;
pub(crate) mod sessions;
mod signature;
pub(crate) mod users;
