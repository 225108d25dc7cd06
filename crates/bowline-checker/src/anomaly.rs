//! Anomalies: the ways to violate the guarantees, each with its evidence.

use crate::history::{Attachment, Token};

/// One violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anomaly {
    /// An acknowledged turn is not in the log, or was never delivered.
    Lost { session: String, turn_id: String, loss: Loss },
    /// A turn is stored or delivered in the wrong order.
    Reordered { session: String, turn_id: String, order: Order },
    /// A turn has another text, or another id.
    Altered { session: String, turn_id: String, alteration: Alteration },
    /// A turn that no client requested.
    Phantom { session: String, turn_id: String, unasked: Unasked },
    /// A turn was stored or delivered more than once.
    Duplicate { session: String, turn_id: String, repeat: Repeat },
    /// A call of a tool has no end. `turn_id`: none if a host made it.
    Unended { session: String, turn_id: Option<String>, input: String },
    /// A token of the session was not used by exactly one import.
    Misused { session: String, token: Token, misuse: Misuse },
    /// Two owners wrote to a session at the same time.
    Overlapping { session: String, overlap: Overlap },
}

/// The kind of an anomaly, without its evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Lost,
    Reordered,
    Altered,
    Phantom,
    Duplicate,
    Unended,
    Misused,
    Overlapping,
}

/// How a turn was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It was acknowledged as stored.
    NotInLog,
    /// The log has a gap at this position.
    Hole { seq: u64 },
    /// A message is in the log without its answer: half of a transaction.
    Unanswered { seq: u64 },
    /// A surface was sent a later turn before any surface had this one.
    Skipped { attachment: Attachment, seq: u64, at: u64 },
    /// The gateway counts it as delivered, but no surface received it.
    NeverDelivered { seq: u64 },
}

/// How the order is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Acknowledged at one position, stored at another.
    Moved { told: u64, stored: u64 },
    /// Sent after the turn at `after` was acknowledged, but stored before it.
    BeforeAnEarlierOne { after: u64, stored: u64 },
    /// Positions in the log do not increase.
    LogGoesBack { seq: u64 },
    /// A surface got it after a later one, or twice in one attachment.
    SurfaceGoesBack { attachment: Attachment, after: u64, seq: u64 },
}

/// What differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alteration {
    /// The caller's message.
    Question { asked: String, stored: String },
    /// The answer that the caller received.
    Answer { told: String, stored: String },
    /// The text that a surface received.
    Delivered { attachment: Attachment, got: String, stored: String },
    /// A surface got another turn at this position than the log has.
    Renamed { attachment: Attachment, seq: u64, stored: String },
    /// What a device answered to a call; none: it did not answer.
    Result { input: String, said: Option<String>, told: String },
    /// An imported session, at this position.
    Imported { at: usize, exported: String, imported: Option<String> },
}

/// Why a turn should not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unasked {
    /// No client ever sent it.
    NeverAsked { text: String },
    /// Every attempt was refused.
    Refused { text: String },
    /// A surface got a turn that is not in the log.
    NotInLog { attachment: Attachment, seq: u64 },
    /// A turn ended as cancelled, and nobody cancels in its session.
    NotCancelled { seq: u64 },
    /// A device ran what nobody called.
    NotCalled { input: String },
}

/// What was repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repeat {
    /// One request, several answers in the log.
    AnsweredAgain { text: String },
    /// One turn ends twice in the log.
    EndedAgain { seq: u64 },
    /// Delivered to an attachment that began after it was confirmed.
    AfterConfirmed { attachment: Attachment, seq: u64, confirmed: u64 },
    /// One call of a tool ends twice in the log.
    CallEndedAgain { seq: u64 },
    /// A device was asked to run a call more often than it was made.
    RanAgain { input: String, times: usize, called: usize },
}

/// What is wrong with the use of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misuse {
    /// Several sessions came from it.
    UsedAgain { sessions: Vec<String> },
    /// An import was told of this session, and it is not there.
    Gone { told: String },
    /// An import was told that it was used, and nobody used it.
    UsedByNobody,
}

/// How the times of two owners overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlap {
    /// An owner wrote after a later one.
    FenceGoesBack { after: u64, fence: u64 },
    /// Two replicas wrote as the same owner.
    FenceShared { fence: u64, owners: [String; 2] },
    /// One attempt of a turn was started twice.
    StartedAgain { turn_id: String, attempt: u64 },
    /// The answer was written by another owner than the one that ran the turn last.
    AnsweredByAnother { turn_id: String, ran: u64, wrote: u64 },
}

impl Anomaly {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Lost { .. } => Kind::Lost,
            Self::Reordered { .. } => Kind::Reordered,
            Self::Altered { .. } => Kind::Altered,
            Self::Phantom { .. } => Kind::Phantom,
            Self::Duplicate { .. } => Kind::Duplicate,
            Self::Unended { .. } => Kind::Unended,
            Self::Misused { .. } => Kind::Misused,
            Self::Overlapping { .. } => Kind::Overlapping,
        }
    }
}
