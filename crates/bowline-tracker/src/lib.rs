//! The tracker of a federation (SBP-L6-03): it knows which gateway has which bundle, and nothing else.
//!
//! A process of its own, with a store of its own (SBP-L6-08); [`mounted`] is for a gateway that is a
//! tracker, too. Gateways announce content ids, signed with their keys; the tracker verifies each
//! announcer's key at the announcer's own address, and answers look-ups with its own signature.
//!
//! The path of an announcement: [`http`] reads it within limits, [`announcer`] verifies it, and
//! [`registry`] stores it, on the one thread that writes. The path of a look-up: [`http`], one of the
//! [`threads`] that read, and a signature.
//!
//! Invariants
//! - Nothing but ids, addresses, keys and times is stored. An announcement with any other member is
//!   refused, whatever is in it.
//! - A record is made only if the key that signed it was seen at the address that it names.
//! - What is written here is bounded by gateway and in all, and ends within a day.

mod announcer;
mod config;
mod error;
mod http;
mod mounted;
mod registry;
mod shared;
mod threads;
mod throttles;
mod tracker;

pub use config::{TrackerConfig, TrackerLimits};
pub use mounted::MountedRegistry;
pub use registry::{FILE, Registry, RegistryOpenError};
pub use tracker::{BoundTracker, Tracker, TrackerStartError};
