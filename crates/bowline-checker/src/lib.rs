//! A history checker: compares what clients were told with what is there in the end.
//!
//! Apart from the gateway and from every transport, because it must not share their mistakes: it
//! knows no sockets, clock or wire types. A test writes down each invocation and each answer in
//! the order in which the clients saw them, adds the final logs, and asks [`check`].
//!
//! It judges by what a client could know. An answer that never came says nothing: such a turn may
//! be there once or not at all.

mod anomaly;
mod check;
mod history;

pub use anomaly::{Alteration, Anomaly, Kind, Loss, Order, Repeat, Unasked};
pub use check::check;
pub use history::{
    Ask, Attachment, Entry, EntryKind, Event, History, Log, Outcome, Received, Route, Status,
};
