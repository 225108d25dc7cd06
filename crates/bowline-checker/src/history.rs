//! What happened, in the order in which the clients saw it.
//!
//! Invariants that the one who records keeps
//! - An invocation is recorded before its first byte leaves, an answer after its last one came.
//!   The order of events then proves that one thing was over before the other began.
//! - Within a session no two asks have the same text: the text tells which ask a turn answers.
//! - A turn is recorded as received before anything that confirms it leaves.

use std::collections::BTreeMap;

/// One message that a client wants answered, however often it sends it under the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask(pub usize);

/// One attempt of a surface to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attachment(pub usize);

/// Everything that was seen, and what was there in the end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    pub events: Vec<Event>,
    /// The final log of each session.
    pub logs: BTreeMap<String, Log>,
    asks: usize,
    attachments: usize,
}

/// One thing a client did or saw.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Before the first attempt. Later attempts under the same key are the same ask.
    Asked { ask: Ask, client: u32, session: String, text: String },
    /// What one attempt came to.
    Told { ask: Ask, outcome: Outcome },
    /// Before the surface asks to attach.
    Attaching { attachment: Attachment, session: String },
    /// The gateway said that the surface is attached.
    Attached { attachment: Attachment },
    /// The surface has a whole turn.
    Received { attachment: Attachment, turn: Received },
    /// The gateway has shown that it knows: this surface has everything up to there.
    Confirmed { attachment: Attachment, seq: u64 },
    /// The gateway was ended and started again; no attempt to attach survives that.
    Restarted,
}

/// What one attempt to have a message answered came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// 2xx: stored at that position, with these words.
    Answered { seq: u64, turn_id: String, content: String },
    /// Taken on, to be answered whatever happens.
    Accepted { turn_id: String },
    /// 4xx: nothing was stored.
    Refused,
    /// 5xx, or no answer: it may be stored or not.
    Unknown,
}

/// A turn as a surface got it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub seq: u64,
    pub turn_id: String,
    pub content: String,
    pub route: Route,
}

/// How a turn came to a surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Whole.
    Tether,
    /// Put together from its chunks.
    Live,
}

/// A session's log as it was read in the end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Log {
    pub entries: Vec<Entry>,
    /// The gateway says that surfaces have everything.
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
    /// Meant for surfaces.
    pub tethered: bool,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// The caller.
    Message,
    /// The agent.
    Turn,
    /// The gateway, about a turn that has no answer.
    Note,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Complete,
    Cancelled,
    /// Its key is free again: the same message may be run anew.
    Failed,
    /// As `Failed`: given up after restarts.
    Interrupted,
}

impl Entry {
    /// The end of a turn: an answer, or the note in its place.
    pub fn is_reply(&self) -> bool {
        self.kind != EntryKind::Message
    }

    /// An answer after which the same message must not be run again.
    pub fn is_final(&self) -> bool {
        self.kind == EntryKind::Turn && matches!(self.status, Status::Complete | Status::Cancelled)
    }
}

impl History {
    /// A client is about to ask for the first time.
    pub fn asked(&mut self, client: u32, session: &str, text: &str) -> Ask {
        let ask = Ask(self.asks);
        self.asks += 1;
        let (session, text) = (session.to_owned(), text.to_owned());
        self.events.push(Event::Asked { ask, client, session, text });
        ask
    }

    /// An attempt is over.
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

    /// The surface has a whole turn.
    pub fn received(&mut self, attachment: Attachment, turn: Received) {
        self.events.push(Event::Received { attachment, turn });
    }

    /// The gateway knows that the surface has everything up to `seq`.
    pub fn confirmed(&mut self, attachment: Attachment, seq: u64) {
        self.events.push(Event::Confirmed { attachment, seq });
    }

    /// The gateway was ended, and is about to be started again.
    pub fn restarted(&mut self) {
        self.events.push(Event::Restarted);
    }

    /// What the session's log was in the end.
    pub fn ended(&mut self, session: &str, log: Log) {
        self.logs.insert(session.to_owned(), log);
    }

    /// How many asks were answered or accepted.
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
