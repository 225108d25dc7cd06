//! Messages between replicas about their sessions: JSON with a format number.
//!
//! A release reads its predecessor's messages, so fields are only added, each with a default. A
//! message of a later format is ignored, as if it had been lost: its sender waits until this replica
//! is upgraded, too. So is a kind of message that this release does not know. An item or a reply of that
//! sort has its place in the order, or what comes after it would wait for ever: it is read as one that
//! is refused.
//!
//! An [`Instant`] means nothing to another process: a deadline travels as the time that is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_sbp::id::{Seq, SessionId, TurnId, UserId};
use bowline_sbp::session::{Command, Fact, LiveState, Refusal, ReplicaId, Reply, RequestDigest};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// The newest format that this release reads; it writes the same.
const FORMAT: u32 = 1;

/// One link between a proxy and the owner of its session. Made for each proxy anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct LinkId(pub(super) Uuid);

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    ToOwner(Box<ToOwner>),
    ToEdge(Box<ToEdge>),
    Text(Box<TextPiece>),
    Look(Look),
    Seen(Seen),
    CallerLost(CallerLost),
    Beat(Beat),
    /// These links, which the receiver serves, have no proxy any more.
    Gone(Vec<LinkId>),
}

/// The sender is there.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Beat {
    /// Some of the links of its proxies that the receiver serves, as far as it knows.
    #[serde(default)]
    pub(super) links: Vec<LinkId>,
    /// Some of those that it serves itself.
    #[serde(default)]
    pub(super) served: Vec<LinkId>,
}

/// From a proxy. Sent often enough that the owner knows the proxy to be there.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ToOwner {
    pub(super) session: SessionId,
    pub(super) link: LinkId,
    /// The lowest number of an item that is not acknowledged.
    pub(super) base: u64,
    pub(super) items: Vec<(u64, Arc<Item>)>,
    /// Replies up to here were taken.
    pub(super) took: u64,
    /// The version of the newest state that arrived.
    pub(super) version: u64,
    /// A newer state is missing: the owner sends it again.
    #[serde(default)]
    pub(super) behind: bool,
    /// An answer is wanted, although nothing is asked: is the owner there?
    #[serde(default)]
    pub(super) asks: bool,
    /// Somebody reads the text of the running turn.
    #[serde(default)]
    pub(super) watches: bool,
    /// Send text from there again: some is missing.
    #[serde(default)]
    pub(super) read: Vec<TextAt>,
    /// The proxy ends: nothing of it is left.
    #[serde(default)]
    pub(super) ends: bool,
}

/// What a proxy passes on.
#[derive(Debug, Clone, Serialize)]
pub(super) enum Item {
    Command(Command),
    /// Of a surface: a tool result, or that it is gone.
    Fact(Fact),
    /// What only a later release knows.
    #[serde(skip)]
    Unknown,
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        enum Known {
            Command(Command),
            Fact(Fact),
        }
        let item = Box::<RawValue>::deserialize(deserializer)?;
        Ok(match serde_json::from_str(item.get()) {
            Ok(Known::Command(command)) => Self::Command(command),
            Ok(Known::Fact(fact)) => Self::Fact(fact),
            Err(_) => Self::Unknown,
        })
    }
}

/// A reply; of one that only a later release knows, that nobody can tell what was done.
fn reply<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Reply, D::Error> {
    let reply = Box::<RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(reply.get()).unwrap_or(Reply::Refused(Refusal::Unreachable)))
}

/// From the owner.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ToEdge {
    pub(super) link: LinkId,
    /// Items up to here were taken.
    pub(super) took: u64,
    /// The lowest number of a reply that is not acknowledged.
    pub(super) base: u64,
    pub(super) replies: Vec<(u64, Arc<ReplyTo>)>,
    #[serde(default)]
    pub(super) state: Option<StateAt>,
    /// The sender does not own the session, or does not know this link any more: the store says who
    /// does.
    #[serde(default)]
    pub(super) not_mine: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ReplyTo {
    /// The number of the command.
    pub(super) command: u64,
    /// The state that the session had by then: it is shown before the reply is given.
    pub(super) version: u64,
    /// Of an accepted turn: which text is its own. Of an ended one whose chunks are followed: how
    /// many there are.
    #[serde(default)]
    pub(super) text: Option<TextAt>,
    #[serde(deserialize_with = "reply")]
    pub(super) reply: Reply,
}

/// A position in the text of one attempt of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TextAt {
    pub(super) turn: TurnId,
    pub(super) attempt: u32,
    pub(super) chunks: usize,
    pub(super) bytes: usize,
}

/// Text of a turn from a position on.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TextPiece {
    pub(super) link: LinkId,
    pub(super) at: TextAt,
    /// The log position that the answer will have, if it is known.
    pub(super) seq: Option<Seq>,
    pub(super) chunks: Vec<String>,
    pub(super) text: String,
}

/// A state of a session. Of two, that with the greater version is the newer one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StateAt {
    pub(super) version: u64,
    pub(super) state: Arc<LiveState>,
    /// How many milliseconds are left for calls.
    #[serde(default)]
    deadlines: Vec<(Uuid, u64)>,
}

/// Asks for the states of sessions that the receiver owns.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Look {
    pub(super) id: Uuid,
    pub(super) at: LookAt,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum LookAt {
    Sessions(Vec<SessionId>),
    /// All sessions of that user that are live.
    User(UserId),
    /// None; but was that request tried there?
    Request(RequestDigest),
}

/// The answer to a [`Look`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) id: Uuid,
    pub(super) states: Vec<(SessionId, StateAt)>,
    #[serde(default)]
    pub(super) tried: Option<Tried>,
}

/// The turn that a retried request joins.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Tried {
    pub(super) session: SessionId,
    pub(super) turn: TurnId,
    /// The turn created the session.
    pub(super) made: bool,
}

/// The connection of an HTTP caller broke before its turn was answered: the same request, sent to any
/// replica, joins the turn.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CallerLost {
    pub(super) request: RequestDigest,
    pub(super) session: SessionId,
    pub(super) turn: TurnId,
    pub(super) made: bool,
}

#[derive(Serialize)]
struct Written<'a> {
    format: u32,
    from: ReplicaId,
    message: &'a Message,
}

#[derive(Deserialize)]
struct Read<'a> {
    format: u32,
    from: ReplicaId,
    #[serde(borrow)]
    message: &'a RawValue,
}

impl Message {
    pub(super) fn to_bytes(&self, from: ReplicaId) -> Bytes {
        let written = Written { format: FORMAT, from, message: self };
        serde_json::to_vec(&written).expect("messages serialise").into()
    }

    /// A message and its sender; none if it cannot be read.
    pub(super) fn read(bytes: &[u8]) -> Option<(ReplicaId, Self)> {
        let read: Read<'_> = serde_json::from_slice(bytes).ok()?;
        let known = read.format <= FORMAT;
        let message = known.then(|| serde_json::from_str(read.message.get()).ok()).flatten();
        if message.is_none() {
            tracing::debug!(format = read.format, "a message of another replica cannot be read");
        }
        Some((read.from, message?))
    }
}

/// How many bytes something has in a message.
pub(super) fn size_of(part: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // What cannot be written is in no message.
    let _ = serde_json::to_writer(&mut count, part);
    count.0
}

impl StateAt {
    pub(super) fn new(version: u64, state: Arc<LiveState>, now: Instant) -> Self {
        let left = |at: Instant| at.saturating_duration_since(now).as_millis() as u64;
        let calls = state.calls.iter();
        let deadlines = calls.filter_map(|call| Some((call.call, left(call.deadline?)))).collect();
        Self { version, state, deadlines }
    }

    /// The state, with deadlines by the clock of this process.
    pub(super) fn into_state(self, now: Instant) -> Arc<LiveState> {
        let mut state = self.state;
        if !self.deadlines.is_empty() {
            for call in &mut Arc::make_mut(&mut state).calls {
                let left = self.deadlines.iter().find(|(id, _)| *id == call.call);
                call.deadline =
                    left.and_then(|(_, left)| now.checked_add(Duration::from_millis(*left)));
            }
        }
        state
    }
}

#[cfg(test)]
mod tests;
