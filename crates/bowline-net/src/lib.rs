//! Where connections come in and go out.
//!
//! Gateway, relay and control plane accept connections in one way, call other servers in one way and keep
//! secrets on disk in one way. Whoever mends it here mends it for all.
//!
//! | module | what it is |
//! |---|---|
//! | [`door`] | a listener: bounds, TLS, drain; hands requests to a service |
//! | [`peer`] | who is at the other end of a request, also behind a proxy |
//! | [`tls`] | the certificate, and a newer one when the files change |
//! | [`body`] | request bodies, bounded in size and time |
//! | [`outbound`] | calls to other servers: where secrets may go, no proxy on this machine |
//! | [`rate`] | token buckets, alone and for each key |
//! | [`backoff`] | how long to wait before trying again |
//! | [`private_file`] | files that only their owner may read |
//! | [`duration`] | durations as people write them |
//! | [`descriptors`] | how many files and sockets the process may have open |
//! | [`loopback`] | what is on this machine |

pub mod backoff;
pub mod body;
pub mod descriptors;
pub mod door;
pub mod duration;
pub mod loopback;
pub mod outbound;
pub mod peer;
pub mod private_file;
pub mod rate;
mod stall;
mod stream;
pub mod tls;

pub use door::{Door, DoorError, DoorLimits};
pub use peer::{Peer, Place};
pub use stream::Stream;
