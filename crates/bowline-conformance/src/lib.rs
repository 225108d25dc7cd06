//! Conformance checks for SBP servers and SBRP relays, ours or not: everything is seen from outside, over
//! HTTP and WebSocket.
//!
//! A [`Check`] belongs to one requirement of the protocol. [`Suite`] runs the checks of a level and
//! of those before it, or those of a relay, against a [`Target`], and gives a [`Report`]. Checks that need
//! a model which says what they want run against the suite's own [`Model`], which the server under test has
//! to use as its upstream. Relays are checked with tokens of the suite's own [`Issuer`]; it plays daemons and
//! clients itself.
//!
//! Invariants
//! - Nothing here knows how a server is built: no crate of the gateway is used.
//! - Checks share nothing but the server: each makes its own sessions.
//! - Keys and tokens are in no report ([`mask`]).

mod badge;
mod came;
mod check;
mod federation;
mod group;
mod issuer;
mod junit;
mod level;
mod mask;
mod model;
mod problem;
mod report;
mod restart;
mod retry;
mod sbp;
mod sbrp;
mod socket;
mod suite;
mod target;
mod transcript;
mod trial;
mod verdict;
mod way;
mod wire;

pub use badge::to_badge;
pub use check::{Check, Kind, Need};
pub use federation::{Peer, keys};
pub use group::{About, Group};
pub use issuer::Issuer;
pub use junit::to_junit;
pub use level::{Level, UnknownLevel};
pub use model::Model;
pub use problem::Problem;
pub use report::{Outcome, Report, Unseen};
pub use restart::Restart;
pub use sbp::{checks, unseen};
pub use sbrp::{checks as relay_checks, unseen as unseen_of_relays};
pub use suite::{Selection, Suite, UnknownCheck};
pub use target::Target;
pub use verdict::{Finding, Verdict};
