//! Live sessions: one actor each, and handles for everyone else (G19).
//!
//! An actor is a task around [`bowline_sbp::session::Actor`]: it owns the session's inbox, commits
//! to the store, and has its effects run by [`Workers`]. Nothing else writes a session. Watchers
//! subscribe to one [`Live`] value and always see the newest, so no code has to notify them. Text
//! of a running turn does not pass through the inbox; it is read from a [`TextBuffer`].
//!
//! With several replicas a session's actor is in one of them; the others reach it by messages
//! ([`remote`]).

mod driver;
mod effects;
mod first_turn;
mod handle;
mod held;
mod history;
mod live;
mod registry;
mod remote;
mod retries;
mod text;
mod work;

pub(crate) use self::handle::{Accepted, Attachment, Outcomes, Reporter, SessionHandle, refused};
pub(crate) use self::history::History;
pub(crate) use self::live::{Live, Phase};
pub(crate) use self::registry::{Bounds, LiveSessions};
pub(crate) use self::retries::Earlier;
pub(crate) use self::text::TextBuffer;
pub(crate) use self::work::{BusySignal, CallJob, Carry, RoundJob, RoundReport, Workers};
