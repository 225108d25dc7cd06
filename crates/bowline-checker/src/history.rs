//! A history: events in the order in which the clients saw them.
//!
//! Invariants, to be kept by the recorder
//! - An invocation is recorded before its first byte is sent, an answer after its last byte was
//!   received. The order of events then proves that one operation ended before another began.
//! - Within a session no two requests have the same text: the text identifies the request that a
//!   turn answers.
//! - A turn is recorded as received before anything that confirms it is sent.

mod tokens;
mod tools;
mod writes;

use std::collections::BTreeMap;

pub use tokens::{Import, Token};
pub use tools::{HostCall, ToolResult, ToolStep};
pub use writes::{OwnersWrite, Written};

/// One request of a client, with all its retries under the same idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask(pub usize);

/// One attempt of a surface to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attachment(pub usize);

/// All events, and the final logs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    pub events: Vec<Event>,
    /// The final log of each session.
    pub logs: BTreeMap<String, Log>,
    /// The sessions that came from each token, with the contents of their logs.
    pub imports: BTreeMap<Token, BTreeMap<String, Vec<String>>>,
    /// What owners wrote, if somebody looked.
    pub writes: Vec<OwnersWrite>,
    asks: usize,
    attachments: usize,
    host_calls: usize,
    tokens: usize,
}

/// One event at a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Before the first attempt. Retries under the same idempotency key are the same request.
    Asked { ask: Ask, client: u32, session: String, text: String },
    /// The outcome of one attempt.
    Told { ask: Ask, outcome: Outcome },
    /// Before the surface sends its attach.
    Attaching { attachment: Attachment, session: String },
    /// The gateway answered that the surface is attached.
    Attached { attachment: Attachment },
    /// The surface received a whole turn.
    Received { attachment: Attachment, turn: Received },
    /// The gateway has processed the confirmation of this surface up to `seq`.
    Confirmed { attachment: Attachment, seq: u64 },
    /// Before somebody cancels turns of the session.
    Cancelling { session: String },
    /// Before a host calls a tool of a device.
    Calling { call: HostCall, session: String, input: String },
    /// The host's call has ended. `None`: the connection broke.
    CallEnded { call: HostCall, result: Option<ToolResult> },
    /// A device was asked to run a tool.
    Ran { session: String, input: String },
    /// Before a device answers a call.
    Returning { session: String, input: String, said: String },
    /// A token for the session was made, after the last write to it.
    Exported { token: Token, session: String },
    /// The outcome of one import.
    Imported { token: Token, outcome: Import },
    /// The gateway was killed and started again; pending attaches are void.
    Restarted,
}

/// The outcome of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// 2xx: stored at that position, with this text.
    Answered { seq: u64, turn_id: String, content: String },
    /// Accepted: must be answered eventually.
    Accepted { turn_id: String },
    /// 4xx: nothing was stored.
    Refused,
    /// 5xx, or no answer: may be stored or not.
    Unknown,
}

/// A turn as a surface received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub seq: u64,
    pub turn_id: String,
    pub content: String,
    pub route: Route,
}

/// How a turn was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// As a whole turn.
    Tether,
    /// Assembled from chunks.
    Live,
}

/// The final log of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Log {
    pub entries: Vec<Entry>,
    /// The gateway reports no pending turns.
    pub drained: bool,
}

/// One entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub seq: u64,
    pub turn_id: String,
    pub kind: EntryKind,
    pub content: String,
    pub status: Status,
    /// To be delivered to surfaces.
    pub tethered: bool,
    /// Of an [`EntryKind::Action`]: the calls that it is about.
    pub tools: Vec<ToolStep>,
}

/// The author of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// The caller.
    Message,
    /// The agent.
    Turn,
    /// The gateway, about a turn that has no answer.
    Note,
    /// A call of a tool on the way to an answer, or what came of it.
    Action,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Complete,
    Cancelled,
    /// Its idempotency key is free again: the same message may run again.
    Failed,
    /// Like `Failed`: given up after restarts.
    Interrupted,
}

impl Entry {
    /// The end of a turn: an answer, or the note in its place.
    pub fn is_reply(&self) -> bool {
        matches!(self.kind, EntryKind::Turn | EntryKind::Note)
    }

    /// An answer after which the same message must not be run again.
    pub fn is_final(&self) -> bool {
        self.kind == EntryKind::Turn && matches!(self.status, Status::Complete | Status::Cancelled)
    }
}

impl History {
    /// A client is about to send a request for the first time.
    pub fn asked(&mut self, client: u32, session: &str, text: &str) -> Ask {
        let ask = Ask(self.asks);
        self.asks += 1;
        let (session, text) = (session.to_owned(), text.to_owned());
        self.events.push(Event::Asked { ask, client, session, text });
        ask
    }

    /// An attempt has ended.
    pub fn told(&mut self, ask: Ask, outcome: Outcome) {
        self.events.push(Event::Told { ask, outcome });
    }

    /// A surface is about to attach.
    pub fn attaching(&mut self, session: &str) -> Attachment {
        let attachment = Attachment(self.attachments);
        self.attachments += 1;
        self.events.push(Event::Attaching { attachment, session: session.to_owned() });
        attachment
    }

    /// The surface is attached.
    pub fn attached(&mut self, attachment: Attachment) {
        self.events.push(Event::Attached { attachment });
    }

    /// The surface received a whole turn.
    pub fn received(&mut self, attachment: Attachment, turn: Received) {
        self.events.push(Event::Received { attachment, turn });
    }

    /// The gateway has processed the confirmation of the surface up to `seq`.
    pub fn confirmed(&mut self, attachment: Attachment, seq: u64) {
        self.events.push(Event::Confirmed { attachment, seq });
    }

    /// Somebody is about to cancel turns of the session.
    pub fn cancelling(&mut self, session: &str) {
        self.events.push(Event::Cancelling { session: session.to_owned() });
    }

    /// The gateway was killed, and is about to be started again.
    pub fn restarted(&mut self) {
        self.events.push(Event::Restarted);
    }

    /// The final log of the session.
    pub fn ended(&mut self, session: &str, log: Log) {
        self.logs.insert(session.to_owned(), log);
    }

    /// The number of requests that were answered or accepted.
    pub fn acknowledged(&self) -> usize {
        let told = |event: &&Event| match event {
            Event::Told { outcome, .. } => {
                matches!(outcome, Outcome::Answered { .. } | Outcome::Accepted { .. })
            }
            _ => false,
        };
        self.events.iter().filter(told).count()
    }
}
