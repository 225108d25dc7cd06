//! The relay's side: who is connected to whom.
//!
//! Two machines. A [`Pair`] is one client's session and knows when it pauses, resumes and ends. A
//! [`Berth`] is one daemon id with all its pairs: it knows which connections are current, so that
//! the late news of an old one changes nothing. Frames that are merely passed on ask
//! [`Berth::route_from_client`] and [`Berth::route_from_daemon`], which change nothing either.

mod berth;
mod pair;

pub use berth::{Action, Berth, Event, Link, Route};
pub use pair::{Pair, PairAction, PairEvent, PairState};

/// How long a session waits for its daemon (SBRP-RELAY-09).
pub const DEFAULT_GRACE: std::time::Duration = std::time::Duration::from_secs(30);
