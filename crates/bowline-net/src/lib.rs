//! Inbound and outbound connections.
//!
//! Gateway, relay and control plane accept connections, call other servers and keep secrets on disk
//! in the same way: with the code in this crate.
//!
//! | module | what it is |
//! |---|---|
//! | [`door`] | a listener: connection limits, TLS, drain; passes requests to a service; takes streams of devices |
//! | [`exposure`] | where a server listens, and whether it may without TLS |
//! | [`peer`] | who sent a request, and connections per address or device |
//! | [`forwarded`] | what proxies say about whom they call for |
//! | [`tls`] | the certificate, reloaded when the files change |
//! | [`certificate`] | what a certificate file says: its names, whether it is self-signed |
//! | [`listen`] | addresses to listen on as people write them, and where a listener is reached |
//! | [`body`] | request bodies, bounded in size and time |
//! | [`outbound`] | calls to other servers: where secrets may go, and what to say when they fail |
//! | [`dial`] | connections to other servers for WebSockets: directly or through a proxy, with TLS |
//! | [`proxy`] | which proxy of the environment a connection takes; none on this machine |
//! | [`trust`] | which certificates of other servers are trusted: `--ca-file` |
//! | [`rate`] | token buckets, alone and for each key |
//! | [`backoff`] | back-off: how long to wait before a retry |
//! | [`progress`], [`stall`] | signs of life of a slow peer, and write deadlines that count progress |
//! | [`private_file`] | files that only their owner may read |
//! | [`duration`] | durations as people write them |
//! | [`descriptors`] | the limit of open file descriptors |
//! | [`loopback`] | loopback addresses, host names and URLs |

pub mod backoff;
pub mod body;
pub mod certificate;
pub mod descriptors;
pub mod dial;
pub mod door;
pub mod duration;
pub mod exposure;
pub mod forwarded;
mod head_wait;
mod linger;
pub mod listen;
pub mod loopback;
pub mod outbound;
pub mod peer;
pub mod private_file;
pub mod progress;
pub mod proxy;
pub mod rate;
mod reads;
pub mod stall;
mod stream;
pub mod tls;
pub mod trust;

pub use door::{Door, DoorError, DoorLimits, Entrance, EntryRefused};
pub use exposure::DoorConfig;
pub use peer::{ConnectionPermit, DeviceEntry, Peer, PeerName};
pub use stream::Stream;
