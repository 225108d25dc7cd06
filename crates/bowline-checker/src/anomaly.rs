//! What can be wrong with a history: the five ways to break the promise, each with its evidence.

use crate::history::Attachment;

/// One broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anomaly {
    /// Something acknowledged is not there, or never came.
    Lost { session: String, turn_id: String, loss: Loss },
    /// Something is there, and in the wrong place.
    Reordered { session: String, turn_id: String, order: Order },
    /// Something is there with other words, or under another name.
    Altered { session: String, turn_id: String, alteration: Alteration },
    /// Something is there that nobody asked for.
    Phantom { session: String, turn_id: String, unasked: Unasked },
    /// Something is there, or came, too often.
    Duplicate { session: String, turn_id: String, repeat: Repeat },
}

/// The kind of an anomaly, without its evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Lost,
    Reordered,
    Altered,
    Phantom,
    Duplicate,
}

/// How a turn was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// A client was told that it is stored.
    NotInLog,
    /// The log has a hole at this position.
    Hole { seq: u64 },
    /// A message is in the log without its answer: half of a transaction.
    Unanswered { seq: u64 },
    /// A surface was sent a later turn before anyone had this one.
    Skipped { attachment: Attachment, seq: u64, at: u64 },
    /// The gateway says that surfaces have it, and none does.
    NeverDelivered { seq: u64 },
}

/// What is in the wrong place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Told to be at one position, stored at another.
    Moved { told: u64, stored: u64 },
    /// Asked for after the turn at `after` was acknowledged, and stored before it.
    BeforeAnEarlierOne { after: u64, stored: u64 },
    /// A position that the log had passed.
    LogGoesBack { seq: u64 },
    /// A surface got it after a later one, or twice in one attachment.
    SurfaceGoesBack { attachment: Attachment, after: u64, seq: u64 },
}

/// What differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alteration {
    /// The caller's own words.
    Question { asked: String, stored: String },
    /// The words the caller was answered.
    Answer { told: String, stored: String },
    /// The words a surface got.
    Delivered { attachment: Attachment, got: String, stored: String },
    /// A surface got another turn at this position than the log has.
    Renamed { attachment: Attachment, seq: u64, stored: String },
}

/// What nobody asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unasked {
    /// No client ever sent it.
    NeverAsked { text: String },
    /// Every attempt was refused.
    Refused { text: String },
    /// A surface got a turn that is not in the log.
    NotInLog { attachment: Attachment, seq: u64 },
}

/// What came too often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repeat {
    /// One ask, several answers in the log.
    AnsweredAgain { text: String },
    /// One turn ends twice in the log.
    EndedAgain { seq: u64 },
    /// Delivered to an attachment that began after it was confirmed.
    AfterConfirmed { attachment: Attachment, seq: u64, confirmed: u64 },
}

impl Anomaly {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Lost { .. } => Kind::Lost,
            Self::Reordered { .. } => Kind::Reordered,
            Self::Altered { .. } => Kind::Altered,
            Self::Phantom { .. } => Kind::Phantom,
            Self::Duplicate { .. } => Kind::Duplicate,
        }
    }
}
