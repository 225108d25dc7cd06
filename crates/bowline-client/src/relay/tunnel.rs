//! The protocol inside a sealed session: services, and TCP connections through one of them.
//!
//! The relay sees none of this. The first message of a session is the client's and names a service;
//! the daemon accepts or refuses it, and all later messages belong to the service.
//!
//! ```text
//! client: "bowline" 01 <service>        01 is the version; the service is the rest, in ASCII
//! daemon: "bowline" 01 <answer>         00 yes, 01 no such service here, 02 no such version
//!
//! service "ping"    the daemon sends every message back
//! service "tcp"     00 <bytes>          a piece of a byte stream
//!                   01 <u32 BE>         so much of the stream was taken; see `pipe`
//! ```
//!
//! The byte stream of "tcp" carries yamux, with the client in yamux's client role. Each yamux
//! stream is one TCP connection to the single target that the daemon was configured with; the
//! client cannot name another. The client begins a stream with the byte 00, so that the stream
//! opens also for a protocol in which the server sends first. Then each direction is a sequence of
//! records, `<length u16 BE> <bytes>`, and ends with a record of length 0. A stream that ends
//! without that record was interrupted, and its TCP connection is reset: a truncated download never
//! looks complete.
//!
//! Invariants
//! - A TCP connection is delivered whole and in order, or reset.
//! - At most [`pipe::WINDOW`] bytes of a session are in flight in each direction, so that a relay
//!   that disconnects slow readers has no reason to.

mod forward;
mod hello;
mod mux;
mod ping;
mod pipe;
mod serve;
mod splice;

pub use forward::{ForwardClosed, Forwarding, forward};
pub use hello::HelloError;
pub use ping::{Pings, ping};
pub use serve::{Services, serve};
