//! Live sessions: one actor each, and handles for everyone else (G19).
//!
//! An actor is a task around [`bowline_sbp::session::Actor`]: it owns the session's inbox, carries its
//! commits to the store, and has its effects done by [`Workers`]. Nobody else writes a session, and
//! nobody has to remember to notify anybody: who watches sees one [`Live`] value, the newest wins.
//! Text of a running turn does not pass through the inbox; it is read from a [`TextBuffer`].

mod driver;
mod effects;
mod handle;
mod history;
mod registry;
mod text;
mod work;

pub(crate) use self::handle::{Accepted, Attachment, Outcomes, Reporter, SessionHandle, refused};
pub(crate) use self::history::History;
pub(crate) use self::registry::{Bounds, Live, LiveSessions};
pub(crate) use self::text::TextBuffer;
pub(crate) use self::work::{BusySignal, CallJob, Carry, RoundJob, RoundReport, Workers};
