//! Who wrote to a session, as the database saw it: what no client can know.

use super::History;

/// One write of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnersWrite {
    pub session: String,
    /// The replica that wrote.
    pub owner: String,
    /// How often the session had an owner until then.
    pub fence: u64,
    pub what: Written,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The session's row: every commit does that.
    Session,
    /// A turn begins, or is taken up by another owner: one more attempt.
    Started { turn_id: String, attempt: u64 },
    /// The answer of a turn, which ends it.
    Answered { turn_id: String },
}

impl History {
    /// The next write, in the order in which they were committed in their session.
    pub fn wrote(&mut self, write: OwnersWrite) {
        self.writes.push(write);
    }
}
