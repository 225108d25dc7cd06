//! What is said inside sealed sessions: streams that outlive them ("SBP over SBRP").
//!
//! A tunnel joins a device and a daemon for as long as they need each other. It carries many
//! streams, each an ordered byte stream in both directions, as a TCP connection is. Sealed sessions
//! come and go under it: whenever one is lost, the next one begins with new keys and a new proof,
//! both ends say how many records they have received, and what is missing is sent again. So a relay's
//! restart or a minute of sleep costs time and no bytes.
//!
//! | file | what |
//! |---|---|
//! | `hello` | the first message each way: version, proof, positions |
//! | `record` | the messages after them, byte by byte |
//! | `positions` | numbering, acknowledgement and retransmission of records |
//! | `path_window` | how much may be on its way, from measured round trips and rates |
//! | `budget` | what all tunnels of a process may hold together |
//! | `stream` | one stream: its credit, its two ends |
//! | `unread` | what a stream has received and its program has not read |
//! | `machine` | [`Tunnel`]: all of it together, without I/O |
//!
//! The wire format is described in `docs/sbp-over-sbrp.md`.
//!
//! Invariants
//! - A stream is delivered whole and in order, or reset: never cut off silently.
//! - Every buffer is bounded: unacknowledged data by what the path holds and at most 4 MiB, all that is
//!   unacknowledged by twice that, what is unread by each stream's credit, the streams by
//!   [`MOST_STREAMS`], and all tunnels of a process by a [`TunnelBudget`].
//! - Nothing is opened before the hello was accepted.

mod budget;
mod hello;
mod machine;
mod path_window;
mod positions;
mod record;
mod stream;
mod unread;
#[cfg(test)]
mod vector_tests;

use std::fmt;

pub use budget::TunnelBudget;
pub use hello::{Hello, HelloFault, HelloReply, VERSION, Welcome, refusal_for_version_1};
pub use machine::{Tunnel, TunnelEvent, TunnelSide};
pub use record::{Record, ResetReason, StreamId};
pub use stream::{EndDelivery, ReadOutcome, WriteOutcome};

/// The most streams of a tunnel that are open at once.
pub const MOST_STREAMS: usize = 256;
/// The longest name of a service.
pub const LONGEST_SERVICE: usize = 64;

/// The client's name for a tunnel: random, and unique among its device's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TunnelId([u8; 16]);

impl TunnelId {
    /// From fresh random bytes.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for TunnelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TunnelId(…)")
    }
}

/// The peer broke the rules, or a record was lost on the way. The sealed session is of no more use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TunnelFault {
    /// A record cannot be read.
    #[error("a record cannot be read")]
    Malformed,
    /// A record was lost on the way.
    #[error("a record was lost on the way")]
    Gap,
    /// The positions of the two ends do not fit together.
    #[error("the positions of the two ends do not fit together")]
    Positions,
    /// The peer does not acknowledge what it receives.
    #[error("the peer does not acknowledge what it receives")]
    Unacknowledged,
    /// The peer sent more than it was allowed to.
    #[error("the peer sent more than it was allowed to")]
    Overrun,
    /// A record is about a stream that was never opened.
    #[error("a record is about a stream that was never opened")]
    UnknownStream,
    /// The peer opened a stream that it may not open.
    #[error("the peer opened a stream that it may not open")]
    Opened,
}

impl TunnelFault {
    /// Whether the tunnel goes on in the next session. Not after a broken rule: what the record said is
    /// lost, and a stream without it would look complete.
    pub fn may_resume(self) -> bool {
        matches!(self, Self::Gap | Self::Unacknowledged)
    }
}
