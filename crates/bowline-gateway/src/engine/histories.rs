//! Recent conversations, kept ready.
//!
//! A model wants the whole history with every turn. Reading it anew each time would make a turn
//! in a long session cost what all turns before it cost together. So the history of a session that
//! was just used stays in memory, within a bound; it is right as long as the log has not grown
//! behind its back, which its position tells.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_sbp::id::{Seq, SessionId};
use bowline_sbp::message::Message;

/// Shorter ones are read faster than they are looked up.
const SHORTEST: usize = 16;
/// What a message takes beside its text.
const OVERHEAD: usize = 64;

/// Histories by session, the least recently used first to go.
#[derive(Debug)]
pub(super) struct Histories {
    most_bytes: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_session: HashMap<SessionId, Place>,
    by_age: BTreeMap<u64, SessionId>,
    clock: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Place {
    last_seq: Seq,
    history: History,
    age: u64,
}

/// A conversation that knows how much memory it takes: counting it anew would cost what all its
/// messages together cost.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Shared with a model while it is asked, and not copied when it is not.
    messages: Arc<Vec<Message>>,
    bytes: usize,
}

impl History {
    pub(super) fn messages(&self) -> &Arc<Vec<Message>> {
        &self.messages
    }

    pub(super) fn push(&mut self, message: Message) {
        self.bytes += size(&message);
        Arc::make_mut(&mut self.messages).push(message);
    }

    pub(super) fn truncate(&mut self, length: usize) {
        let messages = Arc::make_mut(&mut self.messages);
        while messages.len() > length {
            self.bytes -= messages.pop().as_ref().map_or(0, size);
        }
    }
}

impl From<Vec<Message>> for History {
    fn from(messages: Vec<Message>) -> Self {
        Self { bytes: messages.iter().map(size).sum(), messages: Arc::new(messages) }
    }
}

fn size(message: &Message) -> usize {
    message.as_json().len() + OVERHEAD
}

impl Histories {
    pub(super) fn new(most_bytes: usize) -> Self {
        Self { most_bytes, kept: Mutex::default() }
    }

    /// Takes out the history up to `last_seq`, if it is here. Whoever takes it puts it back.
    pub(super) fn take(&self, session: SessionId, last_seq: Seq) -> Option<History> {
        let place = self.lock().remove(session)?;
        (place.last_seq == last_seq).then_some(place.history)
    }

    /// Keeps a history that reaches to `last_seq`.
    pub(super) fn put(&self, session: SessionId, last_seq: Seq, history: History) {
        if history.messages.len() < SHORTEST || history.bytes > self.most_bytes {
            return;
        }
        let mut kept = self.lock();
        kept.remove(session);
        kept.clock += 1;
        let age = kept.clock;
        kept.by_age.insert(age, session);
        kept.bytes += history.bytes;
        kept.by_session.insert(session, Place { last_seq, history, age });
        while kept.bytes > self.most_bytes {
            let Some(oldest) = kept.by_age.first_key_value().map(|(_, session)| *session) else {
                break;
            };
            kept.remove(oldest);
        }
    }

    pub(super) fn forget(&self, session: SessionId) {
        self.lock().remove(session);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn remove(&mut self, session: SessionId) -> Option<Place> {
        let place = self.by_session.remove(&session)?;
        self.by_age.remove(&place.age);
        self.bytes -= place.history.bytes;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn session(n: u128) -> SessionId {
        SessionId(Uuid::from_u128(n))
    }

    fn messages(n: usize) -> History {
        (0..n).map(|n| Message::text("user", &n.to_string())).collect::<Vec<_>>().into()
    }

    #[test]
    fn a_history_is_given_only_for_its_own_position() {
        let histories = Histories::new(1 << 20);
        histories.put(session(1), 20, messages(20));
        assert!(histories.take(session(1), 21).is_none(), "the log has grown since");
        histories.put(session(1), 20, messages(20));
        assert_eq!(histories.take(session(1), 20).unwrap().messages().len(), 20);
        assert!(histories.take(session(1), 20).is_none(), "taken out");
    }

    #[test]
    fn g11_the_oldest_goes_when_there_is_no_room() {
        let mut grown = History::default();
        messages(21).messages().iter().cloned().for_each(|message| grown.push(message));
        grown.truncate(20);
        let one = messages(20).bytes;
        assert_eq!(grown.bytes, one, "counted as it changes, or at once");
        let histories = Histories::new(2 * one);
        for n in 1..=3 {
            histories.put(session(n), 20, messages(20));
        }
        assert!(histories.take(session(1), 20).is_none());
        assert!(
            histories.take(session(2), 20).is_some() && histories.take(session(3), 20).is_some()
        );
        histories.put(session(4), 99, messages(99));
        assert!(histories.lock().bytes <= 2 * one, "one that never fits is not kept");
        let kept = histories.lock();
        assert!(kept.by_session.is_empty() && kept.by_age.is_empty() && kept.bytes == 0);
    }
}
