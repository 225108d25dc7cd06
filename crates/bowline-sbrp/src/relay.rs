//! The relay's state machines: which client is paired with which daemon.
//!
//! A [`Pair`] is one client's session and decides when it pauses, resumes and ends. A [`PairTable`]
//! is one daemon id with all its pairs. It knows which connections are current, so that late events
//! of an old connection change nothing. Forwarded frames do not query the table: a client's frames
//! follow the [`ClientRoute`] that the table hands out, and a daemon's follow a [`RouteCache`] of
//! earlier answers of [`PairTable::route_from_daemon`].

mod pair;
mod pair_table;
mod route;

pub use pair::{Pair, PairAction, PairInput, PairState};
pub use pair_table::{ClientRefusal, CloseReason, PairTable, TableAction, TableInput};
pub use route::{ClientRoute, ConnectionId, Rejected, Route, RouteCache};

/// The grace period: how long a paused session waits for its daemon (SBRP-RELAY-09).
pub const DEFAULT_GRACE: std::time::Duration = std::time::Duration::from_secs(30);
