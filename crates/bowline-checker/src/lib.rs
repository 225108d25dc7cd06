//! A history checker: compares the answers that clients received with the final logs.
//!
//! Apart from the gateway and from every transport, because it must not share their bugs: it uses
//! no sockets, clock or wire types. A test records each invocation and each answer in the order in
//! which the clients saw them, adds the final logs, and calls [`check`].
//!
//! It uses only what a client can know. After a missing answer, the turn may be in the log once or
//! not at all.

mod anomaly;
mod check;
mod history;

pub use anomaly::{Alteration, Anomaly, Kind, Loss, Order, Repeat, Unasked};
pub use check::check;
pub use history::{
    Ask, Attachment, Entry, EntryKind, Event, History, Log, Outcome, Received, Route, Status,
};
