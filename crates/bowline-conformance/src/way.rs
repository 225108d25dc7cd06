//! The ways in which turns get into a server's Tether, as far as the suite knows them.

/// What makes a turn wait for a surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It was answered over HTTP.
    Answered,
    /// The same, in a session that a surface has left.
    AnsweredAfterDetach,
    /// The address of the public suite alone: an answer over HTTP counts as read.
    Hook,
    /// Nothing that the suite can do.
    Unknown,
}
