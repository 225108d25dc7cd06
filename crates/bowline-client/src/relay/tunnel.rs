//! What is said inside a sealed session: services, and TCP connections through one of them.
//!
//! The relay sees none of this. The first message of a session is the client's and names a
//! service; the daemon answers it, and from then on the service speaks.
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
//! The byte stream of "tcp" is yamux, the client its client. Each yamux stream is one TCP
//! connection to the one target that the daemon was told to offer; the client cannot name another.
//! The client begins a stream with the byte 00, which opens it also for a protocol in which the
//! server speaks first. Then each direction is a row of records, `<length u16 BE> <bytes>`, and
//! ends with a record of length 0. A stream that ends without it was cut off, and so is its TCP connection:
//! half a download never looks like a whole one.
//!
//! Invariants
//! - A TCP connection is carried whole and in order, or reset.
//! - At most [`pipe::WINDOW`] bytes of a session are on their way in each direction, so that a relay
//!   that cuts off slow readers has no reason to.

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
