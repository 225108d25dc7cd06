//! The relay's side: who is connected to whom.
//!
//! Two machines. A [`Pair`] is one client's session and knows when it pauses, resumes and ends. A
//! [`PairTable`] is one daemon id with all its pairs: it knows which connections are current, so that
//! the late news of an old one changes nothing. Frames that are merely passed on do not ask it:
//! they go by the [`ClientRoute`]s that it hands out, and a daemon's by a [`RouteCache`] of what
//! [`PairTable::route_from_daemon`] has answered.

mod pair;
mod pair_table;
mod route;

pub use pair::{Pair, PairAction, PairInput, PairState};
pub use pair_table::{ClientRefusal, CloseReason, PairTable, TableAction, TableInput};
pub use route::{ClientRoute, ConnectionId, Rejected, Route, RouteCache};

/// How long a session waits for its daemon (SBRP-RELAY-09).
pub const DEFAULT_GRACE: std::time::Duration = std::time::Duration::from_secs(30);
