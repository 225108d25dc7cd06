//! End-to-end tests of the built binary: real processes, real sockets, real restarts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod also_tracker;
mod backup;
mod bench;
mod bench_relay;
mod bounded;
mod browser_build;
mod certify;
mod chat;
mod chat_terminal;
mod chat_tools;
mod cli;
mod clients;
mod conformance;
mod control_cli;
mod deploy;
mod disk;
mod docs;
mod federation_cli;
mod federation_commands;
mod federation_crash;
mod federation_demo;
#[cfg(target_os = "linux")]
mod federation_found;
mod flood;
mod large;
mod mcp_cli;
mod network;
mod not_run;
mod npm;
mod openai_sdk;
mod power;
mod process;
mod process_memory;
mod proxied;
mod readme;
mod relay_cli;
mod relay_ends_cli;
mod replicas_tool;
mod restart;
mod roaming_cli;
mod rooms;
mod sbrp;
mod sbrp_soak;
mod server_settings;
mod sessions_cli;
mod signed_cli;
mod store_cli;
mod terminal;
mod tls;
mod tracker;
mod travel;
mod up;
mod users_cli;
mod with_control;
