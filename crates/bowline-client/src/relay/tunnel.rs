//! Streams through a relay that survive lost sessions: "SBP over SBRP".
//!
//! The protocol is [`bowline_sbrp::tunnel`], described byte by byte in `docs/sbp-over-sbrp.md`; here
//! are the tasks around it.
//!
//! | file | what |
//! |---|---|
//! | `client` | [`TunnelClient`]: proves its device, reconnects, opens streams |
//! | `server` | [`TunnelServer`]: lets paired devices in |
//! | `tunnels`, `accept` | the tunnels of a daemon, and the services that run for their streams |
//! | `revocation` | ends the tunnels of devices that were revoked |
//! | `services` | what a daemon offers: TCP targets, or whatever a program adds |
//! | `stream` | [`TunnelStream`]: one stream, to read and write |
//! | `core`, `carry`, `greet` | the shared state, and what carries it over one session |
//! | `forward`, `splice`, `ping` | local ports, standard input and output, round trips |

mod accept;
mod carry;
mod client;
mod core;
mod forward;
mod greet;
mod peer;
mod ping;
mod revocation;
mod server;
mod services;
mod splice;
mod stream;
mod tunnels;

use std::time::Duration;

pub use client::{
    Connected, DeviceIdentity, OpenStreamError, TunnelClient, TunnelClosed, TunnelNotice,
    TunnelOpener,
};
pub use forward::{ForwardError, ForwardNotice, Forwarding, forward, forward_stdio, forward_unix};
pub use greet::GreetError;
pub use peer::TunnelPeer;
pub use ping::{PingError, Pings};
pub use server::{TunnelServer, TunnelServerConfig};
pub use services::{API, HTTP, PING, Services, TcpTargets};
pub use stream::TunnelStream;

/// How long both ends keep a tunnel without a session.
pub const KEEP: Duration = Duration::from_secs(10 * 60);
