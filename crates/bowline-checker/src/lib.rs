//! A history checker: compares the answers that clients received with the final logs.
//!
//! Apart from the gateway and from every transport, because it must not share their bugs: it uses
//! no sockets, clock or wire types. A test records each invocation and each answer in the order in
//! which the clients saw them, adds the final logs, and calls [`check`].
//!
//! It uses only what a client can know, and what a database saw of the writes if somebody looked. After a
//! missing answer, the turn may be in the log once or not at all.

mod anomaly;
mod check;
mod history;

pub use anomaly::{Alteration, Anomaly, Kind, Loss, Misuse, Order, Overlap, Repeat, Unasked};
pub use check::check;
pub use history::{
    Ask, Attachment, Entry, EntryKind, Event, History, HostCall, Import, Log, Outcome, OwnersWrite,
    Received, Route, Status, Token, ToolResult, ToolStep, Written,
};
