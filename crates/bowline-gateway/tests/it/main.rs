//! The gateway against real sockets, a real store and a scripted upstream.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod bench;
mod bounds;
mod disk;
mod failing;
mod fuzz;
mod garbage;
mod idempotency;
mod l1_completions;
mod l1_history;
mod l1_pages;
mod l1_sessions;
mod l1_streaming;
mod l2_attach;
mod l2_delivery;
mod l2_lifecycle;
mod l4_surfaces;
mod l4_tokens;
mod l4_translate;
mod l5_approvals;
mod l5_tools;
mod mcp_crash;
mod mcp_northbound;
mod mcp_southbound;
mod memory;
mod operations;
mod phone;
mod python;
mod raw_socket;
mod roaming;
mod roaming_again;
mod roaming_export;
mod roaming_fork;
mod roaming_handoff;
mod roaming_import;
mod roaming_races;
mod roaming_refusals;
mod roaming_tampering;
mod steering;
mod upstream;
mod upstreams;
mod websocket;
mod websocket_utf8;
