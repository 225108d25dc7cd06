//! The asking side of a federation (SBP-L6): how a gateway finds other gateways and asks them.
//!
//! Everything that comes from a peer is hostile until it was verified: addresses, sizes, times,
//! signatures. What is verified, and against what, is decided in `bowline_sbp::federation`; this crate
//! carries it out. It knows no store and no gateway: what has to be remembered goes through [`Pins`].
//!
//! | module | what it is |
//! |---|---|
//! | [`address`] | which addresses a stranger may send us to |
//! | [`target`] | a peer, where it serves, and whether the operator named it |
//! | [`lookup`], [`dialer`] | names are resolved once, and the checked addresses are dialled |
//! | [`limits`], [`body`], [`client`] | requests with limits on size, time and rate |
//! | [`penalties`] | how long a peer is left alone that failed or lied |
//! | [`own_keys`] | the keys of this gateway, as they are now |
//! | [`pins`], [`manifests`], [`peers`] | who has which key |
//! | [`bundle`] | a bundle of a peer, verified |
//! | [`registry`] | trackers: announce, withdraw, look up |
//! | [`srv`], [`discovery`] | where a gateway or a bundle may be |
//!
//! Invariants
//! - A stranger's address is dialled only if it is public, and the address that was checked is the one
//!   that is dialled. Only peers that the operator named are exempt.
//! - No redirect is followed, nothing is decompressed, and no body is longer than its limit.
//! - Nothing is returned of a peer's answer before its signature or content id was verified.

pub mod address;
pub mod body;
pub mod bundle;
pub mod client;
pub mod dialer;
pub mod discovery;
pub mod fault;
pub mod limits;
pub mod lookup;
pub mod manifests;
pub mod own_keys;
pub mod peers;
pub mod penalties;
pub mod pins;
pub mod registry;
mod spool;
pub mod srv;
pub mod target;

pub use address::NotPublic;
pub use bundle::{BundleRequest, FetchedBundle};
pub use client::{Answer, PeerClient, PeerRequest};
pub use discovery::{Candidate, Discovery, FoundBy, Search, Wanted};
pub use fault::{Blame, PeerFault};
pub use limits::ReadLimits;
pub use lookup::{Lookup, SystemLookup};
pub use own_keys::{KeySet, OwnKeys};
pub use peers::{Credentials, Freshness, Peers, Probed};
pub use pins::{MemoryPins, Pins, PinsUnavailable};
pub use srv::{DnsSrv, SrvLookup, SrvTarget};
pub use target::{Reach, StaticPeer, Target};
